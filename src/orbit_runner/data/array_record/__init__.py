"""ArrayRecord files, whose records are read by index."""
