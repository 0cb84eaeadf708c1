"""Atomic writes, standard streams, signals, log messages, the cache directory, and more."""
