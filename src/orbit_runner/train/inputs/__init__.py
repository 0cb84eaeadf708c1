"""How batches reach the replicas."""
