"""Where the time of a step goes, by traces of TensorFlow's profiler."""
