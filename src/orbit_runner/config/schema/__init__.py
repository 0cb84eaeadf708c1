"""The settings of an experiment: dataclasses with checks. Does not import TensorFlow."""
