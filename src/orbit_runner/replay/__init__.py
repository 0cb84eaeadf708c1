"""Examines one training step: losses of examples, gradients, and the first bad value."""
