"""Reproducible random draws, seeds and numerics: the same config gives the same bits."""
