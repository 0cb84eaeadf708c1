"""Measurements of the training and of the machine."""
