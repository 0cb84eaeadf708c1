"""Compares the runner with its peers; each figure is a ratio of alternating runs."""
