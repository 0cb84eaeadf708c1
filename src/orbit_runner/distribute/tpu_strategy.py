"""Builds the strategy for a TPU, assigns its devices to replicas, and divides inputs among them."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.config.schema.partitioning import shape_problems
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.devices import DeviceError
from orbit_runner.errors import SettingError, first_line, format_count

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors


_LOCAL = "local"
_ALLOWED = "allowed: local, the name of a TPU, or its addresses, such as grpc://10.0.0.2:8470"
# Where TensorFlow looks for a TPU if none is named, in the same order.
_VARIABLES = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME")


def find_tpu(
    runtime: RuntimeConfig, environ: Mapping[str, str], devices: Path = Path("/dev")
) -> str:
    """Returns the TPU to use: `local`, a name, or addresses.

    If `runtime.tpu` is empty, the environment variables of Google Cloud determine it, or else the
    device files of this machine, which are in `devices`. Raises `DeviceError` if no TPU is found.
    """
    names = (runtime.tpu, *(environ.get(variable) for variable in _VARIABLES))
    name = next((name.strip() for name in names if name and name.strip()), "")
    # TPU drivers expose a chip as /dev/accel0, and from v5e on as /dev/vfio/0.
    if name or any(devices.glob("accel[0-9]*")) or any(devices.glob("vfio/[0-9]*")):
        return name or _LOCAL
    raise DeviceError(
        f"is not set, {' and '.join(_VARIABLES)} are not set either, and this machine has no TPU\n"
        f"{_ALLOWED}",
        field="tpu",
        code="not-set",
    )


def build_tpu_strategy(runtime: RuntimeConfig) -> tf.distribute.TPUStrategy:
    """Finds and initializes the TPU, and returns the strategy over all its devices.

    `runtime` must contain the effective partition dims; each replica has `runtime.parts` devices.
    Raises `DeviceError` if the TPU is not found, or its devices cannot be divided by the parts.
    """
    name = find_tpu(runtime, os.environ)
    topology = _initialize_tpu(resolver := _build_resolver(name), name)
    # The assignment is always passed. It equals the default if a replica is one device, but v5p
    # requires it, and Model Garden's fix for v5p uses an attribute that TensorFlow 2.20 lacks.
    # Partitioned steps are compiled as one program for all parts (`run_options`), while variables
    # are not partitioned, as in Model Garden's own driver for such runs.
    return tf.distribute.TPUStrategy(
        resolver, experimental_device_assignment=assign_devices(topology, runtime.parts)
    )


def run_options(runtime: RuntimeConfig) -> tf.distribute.RunOptions | None:
    """Returns the options of `strategy.run` to compile a step for a TPU; None if not on a TPU.

    `runtime` must contain the effective partition dims.
    """
    if not runtime.traits.uses_tpu:
        return None
    return tf.distribute.RunOptions(
        experimental_xla_options=tf.tpu.XLAOptions(
            use_spmd_for_xla_partitioning=runtime.parts > 1,
            enable_xla_dynamic_padder=True,
        )
    )


def _build_resolver(name: str) -> tf.distribute.cluster_resolver.TPUClusterResolver:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        if name != _LOCAL:
            resolver.cluster_spec()  # Looks up the address in Google Cloud.
    except Exception as error:  # Google Cloud's client packages raise their own classes.
        reason = f"cannot look up {name!r}: {first_line(error)}\n{_ALLOWED}"
        raise DeviceError(reason, field="tpu") from error
    return resolver


def _initialize_tpu(
    resolver: tf.distribute.cluster_resolver.TPUClusterResolver, name: str
) -> tf.tpu.experimental.Topology:
    try:
        if name != _LOCAL:
            tf.config.experimental_connect_to_cluster(resolver)
        return tf.tpu.experimental.initialize_tpu_system(resolver)
    except tf.errors.NotFoundError as error:
        machine = "this machine" if name == _LOCAL else "the machine at that address"
        raise DeviceError(f"got {name!r}, but {machine} has no TPU", field="tpu") from error
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        reason = f"got {name!r}, but the TPU cannot be initialized: {first_line(error)}"
        raise DeviceError(reason, field="tpu") from error


def computation_shape(mesh_shape: Sequence[int], parts: int) -> tuple[int, ...]:
    """Returns the block of devices that each replica uses, such that the blocks fill the mesh.

    `mesh_shape` is the number of chips along x, y and z, and of devices per chip. The block has the
    same dimensions and `parts` devices. The block with the fewest chips is preferred, because
    devices of the same chip are closest, and a cube is preferred over a long block; among these,
    the flattest, because a host has chips of one layer. Raises `DeviceError` if no block fits.
    """
    sides = [[n for n in range(1, size + 1) if size % n == 0] for size in mesh_shape]
    blocks = [block for block in itertools.product(*sides) if math.prod(block) == parts]
    if not blocks:
        devices = math.prod(mesh_shape)
        raise DeviceError(
            f"the TPU has {format_count(devices, 'device')}, which cannot be divided by the "
            f"{parts} parts of a batch\n"
            f"allowed: partition dims whose product divides {devices}",
            field="tpu",
            code="not-divisible",
        )
    return min(blocks, key=lambda block: (sum(block[:-1]), block[-2], block))


def assign_devices(
    topology: tf.tpu.experimental.Topology, parts: int
) -> tf.tpu.experimental.DeviceAssignment:
    """Returns an assignment of all devices of a TPU to replicas of `parts` devices.

    Raises `DeviceError` if the devices cannot be divided by `parts`.
    """
    devices = topology.num_tasks * topology.num_tpus_per_task
    shape = computation_shape([int(size) for size in topology.mesh_shape], parts)
    return tf.tpu.experimental.DeviceAssignment.build(
        topology, computation_shape=shape, num_replicas=devices // parts
    )


def split_inputs(
    strategy: tf.distribute.TPUStrategy,
    inputs: Tensors,
    dims: Sequence[int] | None,
    path: str = "runtime.train_input_partition_dims",
) -> Tensors:
    """Returns inputs with images split over the devices of the replica.

    Must be called inside a step. XLA then derives how all computations on the images are split,
    including halos. `dims` is the number of parts along each dimension of the images, one part per
    device; None splits nothing. Images are the tensors with as many dimensions as `dims` has
    entries; XLA copies all others to each device. Raises `SettingError` for the setting `path` if
    the size of an image is not divisible by the parts, or if no input is an image.
    """
    if dims is None:
        return inputs
    parts = list(dims)
    images = 0

    def split_image(tensor: Tensors) -> Tensors:
        nonlocal images
        if not tf.is_tensor(tensor) or tensor.shape.rank != len(parts):
            return tensor
        for problem in shape_problems(path, parts, tensor.shape.as_list()):
            raise SettingError(problem.path, problem.message, code=problem.code)
        images += 1
        return strategy.experimental_split_to_logical_devices(tensor, parts)

    partitioned_inputs = tf.nest.map_structure(split_image, inputs)
    if not images:
        ranks = sorted({str(tensor.shape.rank) for tensor in tf.nest.flatten(inputs)})
        raise SettingError(
            path,
            f"got {parts}, but no input has {len(parts)} dimensions, only {', '.join(ranks)}",
            code="wrong-type",
        )
    return partitioned_inputs
