"""Weights of classes in the loss, and shares of classes and sources in training batches."""
