"""Subword vocabularies: built, stored in files, and applied in NumPy or in TensorFlow ops."""
