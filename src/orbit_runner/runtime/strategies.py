"""Builds the `tf.distribute.Strategy` that `runtime.distribution_strategy` names."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from orbit_runner.config.runtime import RuntimeConfig
from orbit_runner.runtime.devices import select_devices

StrategyFactory = Callable[[RuntimeConfig, tuple[str, ...]], tf.distribute.Strategy]


def _off(runtime: RuntimeConfig, devices: tuple[str, ...]) -> tf.distribute.Strategy:
    return tf.distribute.get_strategy()


def _one_device(runtime: RuntimeConfig, devices: tuple[str, ...]) -> tf.distribute.Strategy:
    return tf.distribute.OneDeviceStrategy(devices[0])


def _mirrored(runtime: RuntimeConfig, devices: tuple[str, ...]) -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy(
        list(devices), cross_device_ops=_cross_device_ops(runtime.all_reduce_alg, runtime.num_packs)
    )


def _cross_device_ops(name: str | None, num_packs: int) -> tf.distribute.CrossDeviceOps | None:
    if name is None:
        return None
    if name == "nccl":
        return tf.distribute.NcclAllReduce(num_packs=num_packs)
    if name == "hierarchical_copy":
        return tf.distribute.HierarchicalCopyAllReduce(num_packs=num_packs)
    return tf.distribute.ReductionToOneDevice()


# A further strategy is a name in `config.runtime.STRATEGIES` and a line here.
FACTORIES: dict[str, StrategyFactory] = {
    "off": _off,
    "one_device": _one_device,
    "mirrored": _mirrored,
}


def build_strategy(runtime: RuntimeConfig) -> tf.distribute.Strategy:
    """Makes the devices ready and builds the strategy over them.

    Args:
        runtime: The settings.

    Returns:
        The strategy.

    Raises:
        DeviceError: Devices that are not there were asked for.
    """
    return FACTORIES[runtime.distribution_strategy](runtime, select_devices(runtime))
