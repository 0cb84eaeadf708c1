"""Finds records that cannot be read or decoded before training, and excludes them up to a limit."""
