"""Typed, frozen configs from YAML, gin and flags.

Classes with their own checks (`schema/`), `parsing/`, the origin of each value, the fingerprint.
"""
