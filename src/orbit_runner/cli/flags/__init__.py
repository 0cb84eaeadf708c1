"""Flags of the commands: for configs and paths, of Model Garden's drivers and of older drivers."""
