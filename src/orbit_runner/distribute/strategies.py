"""Builds the `tf.distribute.Strategy` that `runtime.distribution_strategy` names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.description import Cluster
from orbit_runner.distribute.cluster.resolver import remote_cluster
from orbit_runner.distribute.devices import select_devices
from orbit_runner.distribute.multi_worker import build_multi_worker
from orbit_runner.distribute.parameter_server import build_parameter_server
from orbit_runner.distribute.tpu.strategy import build_tpu_strategy


@dataclasses.dataclass(frozen=True)
class Place:
    """What a strategy is built over.

    Attributes:
        runtime: The settings.
        devices: The devices of this process, such as `CPU:0`.
        cluster: The cluster it is a member of, if any.
        purpose: What members have to have in common.
    """

    runtime: RuntimeConfig
    devices: tuple[str, ...]
    cluster: Cluster | None = None
    purpose: str = ""

    @property
    def leads(self) -> list[str]:
        """The first device of each replica."""
        return list(self.devices[:: self.runtime.parts])


def _off(place: Place) -> tf.distribute.Strategy:
    return tf.distribute.get_strategy()


def _one_device(place: Place) -> tf.distribute.Strategy:
    return tf.distribute.OneDeviceStrategy(place.leads[0])


def _build_mirrored(place: Place) -> tf.distribute.Strategy:
    runtime = place.runtime
    ops = cross_device_ops(runtime.effective_all_reduce, runtime.num_packs)
    return tf.distribute.MirroredStrategy(place.leads, cross_device_ops=ops)


def cross_device_ops(name: str | None, num_packs: int) -> tf.distribute.CrossDeviceOps | None:
    """Returns how `mirrored` adds up the gradients of its replicas; None for TensorFlow's choice.

    Args:
        name: One of `all_reduce_alg`, or None.
        num_packs: Into how many pieces gradients are packed.
    """
    if name is None:
        return None
    if name == "nccl":
        return tf.distribute.NcclAllReduce(num_packs=num_packs)
    if name == "hierarchical_copy":
        return tf.distribute.HierarchicalCopyAllReduce(num_packs=num_packs)
    return tf.distribute.ReductionToOneDevice()


def _multi_worker_mirrored(place: Place) -> tf.distribute.Strategy:
    assert place.cluster is not None
    return build_multi_worker(place.runtime, place.cluster, place.purpose)


def _parameter_server(place: Place) -> tf.distribute.Strategy:
    jobs = place.cluster.jobs if place.cluster else remote_cluster(place.runtime)
    return build_parameter_server(place.runtime, jobs)


# A further strategy is a name in `config.runtime.STRATEGIES` and a line here.
FACTORIES: dict[str, Callable[[Place], tf.distribute.Strategy]] = {
    "off": _off,
    "one_device": _one_device,
    "mirrored": _build_mirrored,
    "multi_worker_mirrored": _multi_worker_mirrored,
    "parameter_server": _parameter_server,
    "tpu": lambda place: build_tpu_strategy(place.runtime),
}


def build_strategy(
    runtime: RuntimeConfig,
    cluster: Cluster | None = None,
    purpose: str = "",
) -> tf.distribute.Strategy:
    """Makes the devices ready and builds the strategy over them.

    Args:
        runtime: The settings.
        cluster: The cluster that this process is a member of, if any.
        purpose: A text that all members have to have in common, such as a config's fingerprint.

    Returns:
        The strategy.

    Raises:
        DeviceError: Devices that are not there were asked for.
        MemberLost: Another member of the cluster did not come.
    """
    place = Place(runtime, select_devices(runtime), cluster, purpose)
    return FACTORIES[runtime.distribution_strategy](place)
