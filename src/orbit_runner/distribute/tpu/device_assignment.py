"""Assigns the devices of a TPU to replicas."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import tensorflow as tf

from orbit_runner.distribute.devices import DeviceError


def computation_shape(mesh_shape: Sequence[int], parts: int) -> tuple[int, ...]:
    """Returns the block of devices that each replica uses, such that the blocks fill the mesh.

    `mesh_shape` is the number of chips along x, y and z, and of devices per chip. The block has the
    same dimensions and `parts` devices. The block with the fewest chips is preferred, because
    devices of the same chip are closest, and a cube is preferred over a long block; among these,
    the flattest, because a host has chips of one layer.

    Model Garden has one fixed block for each number of parts, such as `[1, 2, 1, 2]` for four. It
    uses both cores of a chip, and does not fit if a chip is one device.

    Raises `DeviceError` if no block of that size fills the mesh.
    """
    sides = [[n for n in range(1, size + 1) if size % n == 0] for size in mesh_shape]
    blocks = [block for block in itertools.product(*sides) if math.prod(block) == parts]
    if not blocks:
        devices = math.prod(mesh_shape)
        raise DeviceError(
            f"the TPU has {devices} devices, which is not divisible by {parts} parts of a batch\n"
            f"allowed: partition dims whose product divides {devices}",
            field="tpu",
        )
    return min(blocks, key=lambda block: (sum(block[:-1]), block[-2], block))


def assign_devices(
    topology: tf.tpu.experimental.Topology, dims: Sequence[int] = ()
) -> tf.tpu.experimental.DeviceAssignment:
    """Returns an assignment of all devices of a TPU to replicas.

    `dims` is the number of parts of a batch along each of its dimensions; their product is the
    number of devices per replica. Replicas are in the order of their hosts, because inputs are
    distributed in that order, and would otherwise be sent from one host to another at each step.
    Raises `DeviceError` if the devices cannot be divided by the number of parts.
    """
    parts, modes = math.prod(dims), tf.tpu.experimental.DeviceOrderMode
    # Neighboring parts exchange edges. If they form a single row, the default order, a ring, puts
    # neighbors next to each other; if they form a grid, the order by rows does.
    mode = modes.MESH if sum(n > 1 for n in dims) > 1 else modes.AUTO
    devices = topology.num_tasks * topology.num_tpus_per_task
    shape = computation_shape([int(size) for size in topology.mesh_shape], parts)
    built = tf.tpu.experimental.DeviceAssignment.build(
        topology,
        computation_shape=shape,
        num_replicas=devices // parts,
        device_order_mode=mode,
    )
    order = sorted(
        range(built.num_replicas), key=lambda replica: _host_order(topology, built, replica)
    )
    return tf.tpu.experimental.DeviceAssignment(topology, built.core_assignment[order])


def _host_order(
    topology: tf.tpu.experimental.Topology,
    assignment: tf.tpu.experimental.DeviceAssignment,
    replica: int,
) -> tuple[int, int]:
    # A replica receives its inputs through the host of its first device.
    first = assignment.coordinates(replica, 0)
    task = topology.task_ordinal_at_coordinates(first)
    return int(task), int(topology.tpu_device_ordinal_at_coordinates(first))
