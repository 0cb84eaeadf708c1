"""Runs the parsers of configs and the readers of files on generated and mutated input.

`python -m tools.fuzz` is described in CONTRIBUTING.md.
"""
