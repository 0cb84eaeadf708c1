"""Callbacks: the best checkpoint, early stopping, divergence, signals and records."""
