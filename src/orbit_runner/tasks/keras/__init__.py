"""Training of any Keras model on arrays, with losses and metrics by their names."""
