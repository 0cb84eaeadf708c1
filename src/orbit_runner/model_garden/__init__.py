"""Code that depends on Model Garden: its experiments, its tasks and the API of its drivers."""
