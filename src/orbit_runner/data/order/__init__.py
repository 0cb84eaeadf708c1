"""The examples of each step, the steps of each example, and random draws; NumPy only."""
