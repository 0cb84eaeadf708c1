"""Typed, frozen configs read from YAML, gin and flags; every value knows where it came from."""
