"""Rules that decide which checkpoints are kept."""
