"""Strategies, devices, process groups, the detection of lost processes; `cluster/`."""
