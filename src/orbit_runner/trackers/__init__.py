"""Trackers: TensorBoard, MLflow, Weights & Biases, and classes of the user."""
