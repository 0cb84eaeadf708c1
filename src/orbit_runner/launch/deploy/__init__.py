"""Manifests for Kubernetes, Slurm and Vertex AI. Imports no tensorflow."""
