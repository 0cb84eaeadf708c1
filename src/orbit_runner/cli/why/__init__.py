"""Runs both runs of `runner why` again, each in a process with its own environment."""
