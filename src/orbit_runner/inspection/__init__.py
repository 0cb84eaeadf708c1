"""Inspects a training run before it starts: layers, batches, memory and schedule."""
