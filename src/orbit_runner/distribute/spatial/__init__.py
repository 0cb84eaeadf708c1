"""Spatial partitioning: splits the images of a replica into parts, each on its own device.

If images are split in two, each device needs half of the memory for activations. Convolutions
receive the edges of the neighboring parts, batch normalization computes its moments over all parts,
and the results, gradients included, equal those of the unpartitioned network up to rounding.

    from orbit_runner.distribute.spatial import partition_model
"""

# Importing these modules registers the rules of their layers.
from orbit_runner.distribute.spatial import convolutions, layers, normalization  # noqa: F401
from orbit_runner.distribute.spatial.grid import Grid, PartitionError
from orbit_runner.distribute.spatial.layers import BLOCK
from orbit_runner.distribute.spatial.model import PartitionedModel, partition_model
from orbit_runner.distribute.spatial.rules import RULES, Rule, pointwise, register

__all__ = [
    "BLOCK",
    "RULES",
    "Grid",
    "PartitionError",
    "PartitionedModel",
    "Rule",
    "partition_model",
    "pointwise",
    "register",
]
