"""Starts the members of a cluster as processes of this machine, and sees to it that they go on."""
