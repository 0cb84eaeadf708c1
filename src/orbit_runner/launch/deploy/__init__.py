"""Manifests for Kubernetes, Slurm and Vertex AI. Does not import TensorFlow."""
