"""The processes of `runner sweep`."""
