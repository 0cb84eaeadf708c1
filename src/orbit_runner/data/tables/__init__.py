"""Tables of numbers and categories from files and arrays, splits by hash, and summaries."""
