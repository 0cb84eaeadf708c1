"""Typed, frozen configs from YAML, gin and flags. Each value has a known origin."""
