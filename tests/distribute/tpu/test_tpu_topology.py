"""The geometry of TPUs: types, topologies, and which devices share a replica."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.config.schema.tpu_platforms import PLATFORMS, find_platform
from orbit_runner.distribute.tpu_strategy import assign_devices, computation_shape
from tests.support.problems import raises
from tests.support.tpu_topologies import make_topology

SMALL = [platform.name for platform in PLATFORMS.values() if platform.devices <= 512]


def topology(name: str) -> Any:
    platform = find_platform(name)
    assert platform is not None
    return make_topology(platform)


def each_split(names: list[str]) -> list[tuple[str, int]]:
    return [
        (name, parts)
        for name in names
        for parts in (1, 2, 4, 8, 16)
        if PLATFORMS[name].devices % parts == 0
    ]


@pytest.mark.parametrize(
    ("name", "mesh", "hosts"),
    [
        ("v2-8", (2, 2, 1, 2), 1),
        ("v2-512", (16, 16, 1, 2), 64),
        ("v3-8", (2, 2, 1, 2), 1),
        ("v3-32", (4, 4, 1, 2), 4),
        ("v3-2048", (32, 32, 1, 2), 256),
        ("v4-8", (2, 2, 1, 1), 1),
        ("v4-16", (2, 2, 2, 1), 2),
        ("v4-32", (2, 2, 4, 1), 4),
        ("v4-4096", (8, 16, 16, 1), 512),
        ("v5e-1", (1, 1, 1, 1), 1),
        ("v5e-4", (2, 2, 1, 1), 1),
        ("v5litepod-8", (2, 4, 1, 1), 2),
        ("v5litepod-256", (16, 16, 1, 1), 64),
        ("v5p-8", (2, 2, 1, 1), 1),
        ("v5p-128", (4, 4, 4, 1), 16),
        ("v5p-12288", (16, 16, 24, 1), 1536),
    ],
)
def test_topology_has_the_mesh_and_hosts_of_the_tpu_type(
    name: str, mesh: tuple[int, ...], hosts: int
) -> None:
    made = topology(name)

    assert tuple(made.mesh_shape) == mesh
    assert made.num_tasks == hosts
    assert made.num_tasks * made.num_tpus_per_task == np.prod(mesh)
    assert made.missing_devices.size == 0


def test_v4_32_devices_are_numbered_as_on_a_real_tpu() -> None:
    # As printed in github.com/huggingface/transformers/issues/20252.
    listed = [[(x, y, z, 0) for y in (0, 1) for x in (0, 1)] for z in range(4)]

    assert topology("v4-32").device_coordinates.tolist() == np.array(listed).tolist()


@pytest.mark.parametrize("name", ["v3", "v3-9", "v9-8", "", "v5litepod-", "V3-8"])
def test_unknown_tpu_types_are_not_found(name: str) -> None:
    assert find_platform(name) is None


@pytest.mark.sample(131)
@pytest.mark.parametrize(("name", "parts"), each_split(SMALL))
def test_each_device_is_in_one_replica_and_replicas_are_blocks(name: str, parts: int) -> None:
    made = topology(name)
    shape = computation_shape(made.mesh_shape.tolist(), parts)

    for dims in ((1, parts, 1, 1), (1, 2, parts // 2, 1) if parts > 2 else (parts,)):
        assignment = assign_devices(made, dims)

        cores = assignment.core_assignment
        assert cores.shape == (np.prod(made.mesh_shape) // parts, parts, 4)
        assert len(np.unique(cores.reshape(-1, 4), axis=0)) == np.prod(made.mesh_shape)
        extents = cores.max(axis=1) - cores.min(axis=1) + 1
        assert (extents == shape).all()


@pytest.mark.parametrize(("name", "parts"), each_split(SMALL))
def test_replicas_match_tensorflow_and_are_ordered_by_host(name: str, parts: int) -> None:
    made = topology(name)
    shape = computation_shape(made.mesh_shape.tolist(), parts)
    built = tf.tpu.experimental.DeviceAssignment.build(
        made, computation_shape=shape, num_replicas=PLATFORMS[name].devices // parts
    )

    ours = assign_devices(made, (1, parts, 1, 1))

    def replicas(assignment: Any) -> list[Any]:
        return [tuple(map(tuple, replica)) for replica in assignment.core_assignment.tolist()]

    assert sorted(replicas(ours)) == sorted(replicas(built))
    fed_by = [ours.host_device(replica, 0) for replica in range(ours.num_replicas)]
    assert len([*itertools.groupby(fed_by)]) == len(set(fed_by))


@pytest.mark.parametrize("name", SMALL)
def test_unpartitioned_replicas_are_single_devices_in_topology_order(name: str) -> None:
    # So passing an assignment changes nothing when TensorFlow does not need one.
    made = topology(name)

    cores = assign_devices(made).core_assignment

    assert (cores == made.device_coordinates.reshape(-1, 1, 4)).all()


@pytest.mark.parametrize(
    ("mesh", "parts", "expected"),
    [
        ((2, 2, 1, 2), 1, (1, 1, 1, 1)),
        ((2, 2, 1, 2), 2, (1, 1, 1, 2)),
        ((2, 2, 1, 2), 4, (1, 2, 1, 2)),
        ((4, 4, 1, 2), 8, (2, 2, 1, 2)),
        ((2, 2, 1, 1), 2, (1, 2, 1, 1)),
        ((2, 2, 1, 1), 4, (2, 2, 1, 1)),
        ((2, 2, 2, 1), 2, (1, 2, 1, 1)),
        ((2, 2, 4, 1), 4, (2, 2, 1, 1)),
        ((2, 2, 4, 1), 8, (2, 2, 2, 1)),
        ((16, 16, 24, 1), 3, (1, 1, 3, 1)),
        ((16, 16, 24, 1), 6, (1, 2, 3, 1)),
    ],
)
def test_computation_shape_fits_the_mesh_and_the_number_of_parts(
    mesh: tuple[int, ...], parts: int, expected: tuple[int, ...]
) -> None:
    assert computation_shape(mesh, parts) == expected


@pytest.mark.parametrize(("parts", "theirs"), [(2, (1, 1, 1, 2)), (4, (1, 2, 1, 2)),
                                               (8, (2, 2, 1, 2)), (16, (4, 2, 1, 2))])  # fmt: skip
def test_model_garden_blocks_fit_only_chips_with_two_devices(
    parts: int, theirs: tuple[int, ...]
) -> None:
    assert sorted(computation_shape((8, 8, 1, 2), parts)) == sorted(theirs)
    with pytest.raises(ValueError, match="does not fit"):
        tf.tpu.experimental.DeviceAssignment.build(topology("v4-128"), computation_shape=theirs)
    assert assign_devices(topology("v4-128"), (parts,)).num_cores_per_replica == parts


@pytest.mark.parametrize("dims", [(1, 4, 1, 1), (1, 2, 2, 1)])
@pytest.mark.parametrize("name", ["v3-8", "v3-32", "v4-8", "v4-16", "v5e-4", "v5e-16", "v5p-64"])
def test_adjacent_parts_are_on_adjacent_chips(name: str, dims: tuple[int, ...]) -> None:
    for replica in assign_devices(topology(name), dims).core_assignment:
        chips = replica[:, :3].reshape(*dims, 3)
        for axis in (1, 2):
            assert (np.abs(np.diff(chips, axis=axis)).sum(axis=-1) <= 1).all()


@pytest.mark.parametrize(("name", "parts"), [("v3-8", 3), ("v3-8", 16), ("v4-8", 8), ("v5e-1", 2)])
def test_parts_that_do_not_divide_the_devices_are_rejected(name: str, parts: int) -> None:
    with raises("not-divisible", "runtime.tpu"):
        assign_devices(topology(name), (1, parts, 1, 1))
