"""Checks that involve several settings."""
