"""YAML, gin and overrides, read with line numbers and built into typed configs."""
