"""Networks, as functions that return Keras models; some are built from Model Garden's blocks."""
