"""The processes of a cluster on one machine.

`manifests.py` fills in the templates for Kubernetes, Slurm and Vertex AI.
"""
