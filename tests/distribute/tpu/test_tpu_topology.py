"""The geometry of TPUs: types, topologies, and which devices share a replica."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.distribute.tpu_strategy import assign_devices, computation_shape
from tests.support.problems import raises
from tests.support.tpu_topologies import MESHES, make_topology

SPLITS = [
    (name, parts)
    for name, mesh in MESHES.items()
    for parts in (1, 2, 4, 8, 16)
    if np.prod(mesh) % parts == 0
]


def test_v4_32_devices_are_numbered_as_on_a_real_tpu() -> None:
    # As printed in github.com/huggingface/transformers/issues/20252.
    listed = [[(x, y, z, 0) for y in (0, 1) for x in (0, 1)] for z in range(4)]

    assert make_topology("v4-32").device_coordinates.tolist() == np.array(listed).tolist()


@pytest.mark.parametrize(("name", "parts"), SPLITS)
def test_each_device_is_in_one_replica_and_replicas_are_blocks(name: str, parts: int) -> None:
    made = make_topology(name)
    shape = computation_shape(made.mesh_shape.tolist(), parts)

    cores = assign_devices(made, parts).core_assignment

    assert cores.shape == (np.prod(made.mesh_shape) // parts, parts, 4)
    assert len(np.unique(cores.reshape(-1, 4), axis=0)) == np.prod(made.mesh_shape)
    extents = cores.max(axis=1) - cores.min(axis=1) + 1
    assert (extents == shape).all()


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
        tf.tpu.experimental.DeviceAssignment.build(
            make_topology("v4-128"), computation_shape=theirs
        )
    assert assign_devices(make_topology("v4-128"), parts).num_cores_per_replica == parts


@pytest.mark.parametrize(("name", "parts"), [("v3-8", 3), ("v3-8", 16), ("v4-8", 8), ("v5e-1", 2)])
def test_parts_that_do_not_divide_the_devices_are_rejected(name: str, parts: int) -> None:
    with raises("not-divisible", "runtime.tpu"):
        assign_devices(make_topology(name), parts)
