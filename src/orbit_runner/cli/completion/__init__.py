"""Completion of commands in shells."""
