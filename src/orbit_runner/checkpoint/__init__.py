"""Checkpoints: saving, restoring, and checks of files and compatibility."""
