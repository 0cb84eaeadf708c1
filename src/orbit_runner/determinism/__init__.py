"""Reproducible random draws, seeds and numerics.

The only package that patches TensorFlow's ops and gradients.
"""
