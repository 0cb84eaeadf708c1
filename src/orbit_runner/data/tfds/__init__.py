"""Datasets that TensorFlow Datasets has prepared, read without that package."""
