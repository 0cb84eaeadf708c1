"""Which examples a step reads, what is drawn for them, and the inverse; NumPy only."""
