"""Networks: their configs, and functions that build Keras models, some of Model Garden's blocks."""
