"""Verifies runs, reproduces them, and finds where two of them first differ."""
