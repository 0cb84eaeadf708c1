"""Checkpoints: which there are, whether they are whole, what fits, writing and restoring them."""
