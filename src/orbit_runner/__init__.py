"""Orbit Runner: a config file is the experiment."""

__version__ = "0.1.0"
