"""TFRecord files, read in an order that is a function of (seed, step)."""
