"""The machine: devices, strategies, precision, threads and seeds."""
