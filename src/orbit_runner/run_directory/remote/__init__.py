"""A run directory in an object store: a local working copy, and what keeps both equal."""
