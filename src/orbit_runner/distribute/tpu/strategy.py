"""Builds the strategy for a TPU."""

from __future__ import annotations

import os

import tensorflow as tf

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.devices import DeviceError
from orbit_runner.distribute.tpu.address import LOCAL, find_tpu, tpu_problems
from orbit_runner.distribute.tpu.device_assignment import assign_devices
from orbit_runner.errors import first_line


def build_tpu_strategy(runtime: RuntimeConfig) -> tf.distribute.TPUStrategy:
    """Finds and initializes the TPU, and returns the strategy over all its devices.

    `runtime` must contain the effective partition dims; each replica has `runtime.parts` devices.
    Raises `DeviceError` if the TPU is not found, or its devices cannot be divided by the parts.
    """
    for path, message in tpu_problems(runtime, os.environ):
        raise DeviceError(message, field=path.removeprefix("runtime."))
    name = find_tpu(runtime, os.environ)
    topology = _initialize_tpu(resolver := _build_resolver(runtime, name), name)
    # The assignment is always passed. It equals the default if a replica is one device, but v5p
    # requires it, and Model Garden's fix for v5p uses an attribute that TensorFlow 2.20 lacks.
    # Partitioned steps are compiled as one program for all parts (`run_options`), while variables
    # are not partitioned, as in Model Garden's own driver for such runs.
    dims = runtime.train_input_partition_dims or runtime.eval_input_partition_dims or ()
    return tf.distribute.TPUStrategy(
        resolver, experimental_device_assignment=assign_devices(topology, dims)
    )


def run_options(runtime: RuntimeConfig) -> tf.distribute.RunOptions | None:
    """Returns the options of `strategy.run` to compile a step for a TPU; None if not on a TPU.

    `runtime` must contain the effective partition dims.
    """
    if not runtime.traits.uses_tpu:
        return None
    padder = runtime.tpu_enable_xla_dynamic_padder
    return tf.distribute.RunOptions(
        experimental_xla_options=tf.tpu.XLAOptions(
            use_spmd_for_xla_partitioning=runtime.parts > 1,
            enable_xla_dynamic_padder=True if padder is None else padder,
        )
    )


def _build_resolver(
    runtime: RuntimeConfig, name: str
) -> tf.distribute.cluster_resolver.TPUClusterResolver:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=name, zone=runtime.tpu_zone, project=runtime.tpu_project
        )
        if name != LOCAL:
            resolver.cluster_spec()  # Looks up the address in Google Cloud.
    except Exception as error:  # Google Cloud's client packages raise their own classes.
        reason = f"cannot look up {name!r}: {first_line(error)}"
        raise DeviceError(reason, field="tpu") from error
    return resolver


def _initialize_tpu(
    resolver: tf.distribute.cluster_resolver.TPUClusterResolver, name: str
) -> tf.tpu.experimental.Topology:
    try:
        if name != LOCAL:
            tf.config.experimental_connect_to_cluster(resolver)
        return tf.tpu.experimental.initialize_tpu_system(resolver)
    except tf.errors.NotFoundError as error:
        machine = "this machine" if name == LOCAL else "the machine at that address"
        raise DeviceError(f"got {name!r}, but {machine} has no TPU", field="tpu") from error
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        reason = f"got {name!r}, but the TPU cannot be initialized: {first_line(error)}"
        raise DeviceError(reason, field="tpu") from error
