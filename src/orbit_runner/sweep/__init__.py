"""Sweeps: many runs of one experiment with other settings, in one directory. No TensorFlow."""
