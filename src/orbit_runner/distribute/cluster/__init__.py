"""The members of a cluster, and the sources that describe them. Does not import TensorFlow."""
