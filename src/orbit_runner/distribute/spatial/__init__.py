"""Spatial partitioning: one replica's images in parts, each on a device of its own.

The halves of an image take half of the activations' memory each. Convolutions are given the edges
of the neighbouring parts, batch normalisation takes its moments over all parts, and what comes out,
gradients included, is what the network gives without a partition, up to rounding.

    from orbit_runner.distribute.spatial import partition_model
"""

# These register the rules of their layers.
from orbit_runner.distribute.spatial import convolutions, layers, normalization  # noqa: F401
from orbit_runner.distribute.spatial.composite_layers import BLOCK
from orbit_runner.distribute.spatial.grid import Grid, PartitionError
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
