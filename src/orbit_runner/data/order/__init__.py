"""Which example is at which position of training and which process reads it."""
