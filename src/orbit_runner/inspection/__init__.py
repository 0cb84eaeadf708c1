"""What a training run would do, before it starts: layers, batches, memory and schedule."""
