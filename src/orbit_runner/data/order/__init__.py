"""Which example is at which position of training, which process reads it, and what is drawn."""
