"""Sentence pairs: vocabularies, sources, and batches by number of tokens."""
