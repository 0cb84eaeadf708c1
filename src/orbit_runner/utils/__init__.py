"""Atomic writes, standard streams, signals, log messages, the cache of XLA, and more."""
