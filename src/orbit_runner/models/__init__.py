"""Networks, as functions that return Keras models."""
