"""Flags of the commands: for configs and paths."""
