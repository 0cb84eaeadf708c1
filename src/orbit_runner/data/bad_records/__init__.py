"""Leaves out rows, lines and pairs that cannot be read, up to a limit."""
