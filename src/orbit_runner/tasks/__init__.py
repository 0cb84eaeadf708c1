"""Tasks, one directory each.

The settings (`config.py`), what it reads and learns from it, without TensorFlow (`data.py`),
`task.py`, inputs, metrics, serving.
"""
