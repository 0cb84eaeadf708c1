"""Strategies, devices, clusters, and the detection of lost processes."""
