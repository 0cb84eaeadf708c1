"""What happens between loops: the best checkpoint, early stopping, divergence, signals, records."""
