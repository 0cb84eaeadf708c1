"""Datasets, and their batches as functions of (seed, step).

The order of examples, its inverse and sharding, written once for NumPy and TensorFlow (`order/`);
one dataset interface for each kind of data. A batch is made in the pipeline of its kind of data:
`array_pipeline.py`, `images/pipeline.py`, `text/pipeline.py`, `ratings/step_batches.py`.
"""
