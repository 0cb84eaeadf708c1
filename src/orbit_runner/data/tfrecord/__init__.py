"""TFRecord files, streamed in an order that is a function of (seed, step)."""
