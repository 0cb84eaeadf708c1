"""The memory of a training step, estimated and measured."""
