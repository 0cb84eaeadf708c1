"""Builds the topologies that TPUs report, without a TPU."""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow as tf

Coordinates = tuple[int, int, int, int]
# Chips along x, y and z and devices per chip, as on Google Cloud's pages about each type. A chip of
# a v2 or v3 is two devices, one for each core; the two cores of a v4 or v5p chip are one device. A
# host has the chips of a layer, at most two along x and y.
MESHES: dict[str, Coordinates] = {
    "v2-8": (2, 2, 1, 2),
    "v3-8": (2, 2, 1, 2),
    "v3-32": (4, 4, 1, 2),
    "v3-256": (8, 16, 1, 2),
    "v4-8": (2, 2, 1, 1),
    "v4-16": (2, 2, 2, 1),
    "v4-32": (2, 2, 4, 1),
    "v4-128": (4, 4, 4, 1),
    "v5e-1": (1, 1, 1, 1),
    "v5e-4": (2, 2, 1, 1),
    "v5e-8": (2, 4, 1, 1),
    "v5e-16": (4, 4, 1, 1),
    "v5p-16": (2, 2, 2, 1),
    "v5p-64": (2, 4, 4, 1),
}


def make_topology(name: str) -> tf.tpu.experimental.Topology:
    """Returns the topology that `initialize_tpu_system` returns on a TPU; each host is a task."""
    mesh = MESHES[name]
    host = min(2, mesh[0]), min(2, mesh[1])
    hosts = [list(_devices(mesh, corner, host)) for corner in _corners(mesh, host)]
    return tf.tpu.experimental.Topology(mesh_shape=mesh, device_coordinates=hosts)


def _corners(mesh: Coordinates, host: tuple[int, int]) -> Iterator[tuple[int, int, int]]:
    """Yields the first chip of each host; z changes slowest, as a v4-32 lists its hosts."""
    width, height, depth, _ = mesh
    for z in range(depth):
        for y in range(0, height, host[1]):
            for x in range(0, width, host[0]):
                yield x, y, z


def _devices(
    mesh: Coordinates, corner: tuple[int, int, int], host: tuple[int, int]
) -> Iterator[Coordinates]:
    x0, y0, z = corner
    for y in range(y0, y0 + host[1]):
        for x in range(x0, x0 + host[0]):
            for core in range(mesh[-1]):
                yield x, y, z, core
