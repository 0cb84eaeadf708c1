"""Sentences of one language from those of another."""
