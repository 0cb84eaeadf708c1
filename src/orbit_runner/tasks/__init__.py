"""Tasks, one directory each."""
