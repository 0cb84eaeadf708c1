"""Builds the topologies that TPUs report, without a TPU."""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow as tf

from orbit_runner.config.schema.tpu_platforms import Platform

Coordinates = tuple[int, int, int, int]


def make_topology(platform: Platform) -> tf.tpu.experimental.Topology:
    """Returns the topology that `tf.tpu.experimental.initialize_tpu_system` returns on a platform.

    `platform` is for example `find_platform("v3-32")`. Each host is a task.
    """
    hosts = [list(_devices(platform, corner)) for corner in _corners(platform)]
    return tf.tpu.experimental.Topology(mesh_shape=platform.mesh, device_coordinates=hosts)


def _corners(platform: Platform) -> Iterator[tuple[int, int, int]]:
    """Yields the first chip of each host; z changes slowest, as a v4-32 lists its hosts."""
    (width, height, depth, _), (x_step, y_step, z_step) = platform.mesh, platform.host
    for z in range(0, depth, z_step):
        for y in range(0, height, y_step):
            for x in range(0, width, x_step):
                yield x, y, z


def _devices(platform: Platform, corner: tuple[int, int, int]) -> Iterator[Coordinates]:
    (x0, y0, z0), (width, height, depth) = corner, platform.host
    for z in range(z0, z0 + depth):
        for y in range(y0, y0 + height):
            for x in range(x0, x0 + width):
                for core in range(platform.mesh[-1]):
                    yield x, y, z, core
