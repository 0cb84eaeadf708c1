"""Checkpoints: which there are, whether they are whole, what fits, saving and restoring."""
