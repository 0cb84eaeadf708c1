"""Networks that Model Garden does not have, as plain functions that return Keras models."""
