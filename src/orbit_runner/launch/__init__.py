"""Starts the members of a cluster as processes and supervises them."""
