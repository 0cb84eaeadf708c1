"""Data sets in memory, the order of their examples, and the pipelines that feed the replicas."""
