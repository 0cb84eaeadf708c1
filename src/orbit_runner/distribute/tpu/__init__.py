"""TPUs: their addresses, the assignment of devices to replicas, and the strategy."""
