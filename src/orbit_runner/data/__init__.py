"""Datasets, and their batches as functions of (seed, step).

The order of examples, its inverse and sharding, written once for NumPy and TensorFlow (`order/`);
one dataset interface for each kind of data; pipelines.
"""
