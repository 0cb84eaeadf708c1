"""The processes of a cluster on one machine."""
