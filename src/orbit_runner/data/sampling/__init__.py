"""Which example stands at which place of an epoch, and which process reads it."""
