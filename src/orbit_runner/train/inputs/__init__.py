"""Brings batches to the replicas."""
