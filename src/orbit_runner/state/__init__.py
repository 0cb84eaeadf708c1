"""The state that changes with each step, and its names in a checkpoint."""
