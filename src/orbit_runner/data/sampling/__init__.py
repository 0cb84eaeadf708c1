"""Which example is at which position of an epoch, and which process reads it."""
