"""Utilities for all other packages: files, streams, signals, logging, metrics and more."""
