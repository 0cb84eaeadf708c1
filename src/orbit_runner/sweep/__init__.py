"""Sweeps: many runs of one experiment with different settings."""
