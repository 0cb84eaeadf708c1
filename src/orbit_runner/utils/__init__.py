"""What any package may use: files, streams, signals, the environment of TensorFlow."""
