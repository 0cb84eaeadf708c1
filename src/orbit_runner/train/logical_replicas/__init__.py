"""Training and evaluation whose results do not depend on the number of devices.

`runtime.logical_replicas` cuts each global batch into parts, the shards, once in the experiment. A
device computes whole shards, one after another, with the random draws that a replica of that number
would have. What all shards compute is summed in one fixed tree.
"""
