"""Networks that Model Garden does not have, as functions that return Keras models."""
