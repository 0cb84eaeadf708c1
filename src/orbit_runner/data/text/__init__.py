"""Pairs of sentences: vocabularies, sources, batches by the number of tokens."""
