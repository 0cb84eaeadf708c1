"""Sub-word vocabularies: built, kept in files, and applied in numpy or in TensorFlow ops."""
