"""TensorBoard, MLflow, Weights & Biases and trackers of users, each in a thread of its own."""
