"""Compares runs: their settings, records, weights and metrics, and the tensors of a step."""
