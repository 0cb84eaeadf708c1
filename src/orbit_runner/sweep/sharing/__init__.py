"""Divides the trials of a sweep among processes, and cores and GPUs among the trials."""
