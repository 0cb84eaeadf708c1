"""Selects the devices that an experiment runs on."""

from __future__ import annotations

import functools

import tensorflow as tf

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.errors import SettingError
from orbit_runner.utils.log import note
from orbit_runner.utils.mfu import peak_of


class DeviceError(SettingError):
    """Raised if requested devices are not available."""

    def __init__(self, message: str, *, field: str = "num_gpus") -> None:
        super().__init__(f"runtime.{field}", message)


def select_devices(runtime: RuntimeConfig) -> tuple[str, ...]:
    """Configures devices, hides unused GPUs, and returns the device names, such as `CPU:0`.

    Raises `DeviceError` if requested devices are not available.
    """
    gpus = tf.config.list_physical_devices("GPU")
    wanted = len(gpus) if runtime.num_gpus < 0 else runtime.num_gpus
    if wanted > len(gpus):
        raise DeviceError(
            f"got {wanted}, but this machine has {_describe(gpus)}\n"
            f"allowed: 0 (the CPU){f' to {len(gpus)}' if gpus else ''}, or -1 for all GPUs"
            "\nset TF_CPP_MIN_LOG_LEVEL=0 to see why TensorFlow does not find a GPU"
        )
    if runtime.distribution_strategy in ("off", "one_device"):
        wanted = min(wanted, runtime.parts)
    tf.config.set_visible_devices(gpus[:wanted], "GPU")
    if wanted:
        return tuple(f"GPU:{index}" for index in range(wanted))
    return _configure_cpus(runtime.num_virtual_devices)


def note_unused_gpus(runtime: RuntimeConfig) -> None:
    """Names the GPUs of this machine if the config asks for none, once per process."""
    count = len(tf.config.list_physical_devices("GPU"))
    if count and runtime.num_gpus == 0 and runtime.distribution_strategy != "tpu":
        _note_once(count, runtime.distribution_strategy)


@functools.cache
def _note_once(count: int, strategy: str) -> None:
    which = f"the {count} GPUs of this machine are" if count > 1 else "the GPU of this machine is"
    advice = "use --num_gpus=1"
    if count > 1 and strategy in ("off", "one_device"):
        advice += f", or --num_gpus={count} --distribution_strategy=mirrored for all"
    elif count > 1:
        advice = f"use --num_gpus={count}"
    note(f"note: {which} not used, because runtime.num_gpus is 0; {advice}")


def _describe(gpus: list[object]) -> str:
    return f"{len(gpus)} GPU{'s' if len(gpus) > 1 else ''}" if gpus else "no GPU"


def _configure_cpus(count: int) -> tuple[str, ...]:
    (cpu,) = tf.config.list_physical_devices("CPU")
    current = tf.config.get_logical_device_configuration(cpu)
    if count > len(current or [None]):
        try:
            parts = [tf.config.LogicalDeviceConfiguration()] * count
            tf.config.set_logical_device_configuration(cpu, parts)
        except RuntimeError:
            raise DeviceError(
                f"got {count}, but TensorFlow has already started with {len(current or [None])} in "
                "this process; the number can be set only once per process",
                field="num_virtual_devices",
            ) from None
    return tuple(f"CPU:{index}" for index in range(count))


def device_groups(strategy: tf.distribute.Strategy, parts: int) -> list[list[str]]:
    """Returns the devices of each replica of this process.

    `strategy` must use every `parts`-th of the devices that `select_devices` returned.
    """
    groups = []
    for lead in strategy.extended.worker_devices:
        kind, index = lead.rsplit("device:", 1)[-1].split(":")
        groups.append([f"{kind}:{int(index) + part}" for part in range(parts)])
    return groups


def local_devices(strategy: tf.distribute.Strategy) -> list[str]:
    """Returns the devices of this process that a strategy computes on, such as `CPU:0`."""
    try:
        names = strategy.extended.worker_devices
    except RuntimeError:  # With the default strategy, TensorFlow prefers the last one.
        names = [tf.config.list_logical_devices()[-1].name]
    return [name.rpartition("device:")[2] for name in names]


def peak_flops_of_gpus(strategy: tf.distribute.Strategy, dtype: str) -> float | None:
    """Returns the peak performance of this process's GPUs together, in operations per second.

    `dtype` is the type of the values that are multiplied. None on a CPU, and if the peak of the
    GPUs is not known.
    """
    current = tf.config.list_physical_devices("GPU")
    used = [name for name in local_devices(strategy) if "GPU" in name.upper()]
    details = [tf.config.experimental.get_device_details(gpu) for gpu in current[: len(used)]]
    return peak_of([str(found.get("device_name", "")) for found in details], dtype)
