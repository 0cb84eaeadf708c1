"""A run directory in an object store: a local working copy, and its synchronization."""
