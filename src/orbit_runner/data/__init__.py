"""Datasets in memory, the order of their examples, and the input pipelines."""
