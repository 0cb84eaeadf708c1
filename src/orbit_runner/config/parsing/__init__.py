"""Reads YAML, gin and overrides with line numbers, and builds typed configs."""
