"""Measures the runner against its peers; each figure is a ratio of alternating runs."""
