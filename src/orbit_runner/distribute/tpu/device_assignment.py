"""Which devices of a TPU share a replica."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import tensorflow as tf

from orbit_runner.distribute.devices import DeviceError


def computation_shape(mesh_shape: Sequence[int], parts: int) -> tuple[int, ...]:
    """Returns the block of devices that a replica takes, so that such blocks fill the mesh.

    Model Garden has one block for each number of parts, `[1, 2, 1, 2]` for four; it takes both
    cores of a chip, and does not fit where a chip is one device. This one follows from the mesh.

    Args:
        mesh_shape: Chips along x, y and z, and devices of a chip.
        parts: Devices of a replica.

    Returns:
        As many numbers as `mesh_shape` has, whose product is `parts`: the block of fewest chips,
        for nothing is nearer than devices of one, and most like a cube; among these the flattest,
        for a host holds chips of one layer.

    Raises:
        DeviceError: No block of that size fills the mesh.
    """
    sides = [[n for n in range(1, size + 1) if size % n == 0] for size in mesh_shape]
    blocks = [block for block in itertools.product(*sides) if math.prod(block) == parts]
    if not blocks:
        devices = math.prod(mesh_shape)
        raise DeviceError(
            f"the TPU has {devices} devices, which {parts} parts of a batch do not divide\n"
            f"allowed: partition dims whose product divides {devices}",
            field="tpu",
        )
    return min(blocks, key=lambda block: (sum(block[:-1]), block[-2], block))


def assign_devices(
    topology: tf.tpu.experimental.Topology, dims: Sequence[int] = ()
) -> tf.tpu.experimental.DeviceAssignment:
    """Shares all devices of a TPU out to replicas.

    Args:
        topology: What `initialize_tpu_system` returned.
        dims: Parts of a batch along each of its dimensions; their product is the number of devices
            of a replica.

    Returns:
        The assignment. Replicas are in the order of their hosts: inputs are handed out in that
        order, and would else travel from one host to another at each step.

    Raises:
        DeviceError: The devices do not divide by the parts.
    """
    parts, modes = math.prod(dims), tf.tpu.experimental.DeviceOrderMode
    # Parts exchange edges with the next ones. In one row, the ring of the default brings these
    # together; in two directions, rows do.
    mode = modes.MESH if sum(n > 1 for n in dims) > 1 else modes.AUTO
    devices = topology.num_tasks * topology.num_tpus_per_task
    shape = computation_shape([int(size) for size in topology.mesh_shape], parts)
    built = tf.tpu.experimental.DeviceAssignment.build(
        topology,
        computation_shape=shape,
        num_replicas=devices // parts,
        device_order_mode=mode,
    )
    order = sorted(range(built.num_replicas), key=lambda replica: _place(topology, built, replica))
    return tf.tpu.experimental.DeviceAssignment(topology, built.core_assignment[order])


def _place(
    topology: tf.tpu.experimental.Topology,
    assignment: tf.tpu.experimental.DeviceAssignment,
    replica: int,
) -> tuple[int, int]:
    # A replica is fed through the host of its first device.
    first = assignment.coordinates(replica, 0)
    task = topology.task_ordinal_at_coordinates(first)
    return int(task), int(topology.tpu_device_ordinal_at_coordinates(first))
