"""Selects the devices that an experiment runs on."""

from __future__ import annotations

import tensorflow as tf

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.process_group import Workers, is_asynchronous
from orbit_runner.errors import SettingError, format_count
from orbit_runner.utils.flops import peak_of
from orbit_runner.utils.log import note_once


class DeviceError(SettingError):
    """Raised if requested devices are not available."""

    code = "missing-device"

    def __init__(self, message: str, *, field: str = "num_gpus", code: str = "") -> None:
        super().__init__(f"runtime.{field}", message, code=code)


def select_devices(runtime: RuntimeConfig) -> tuple[str, ...]:
    """Configures devices, hides unused GPUs, and returns the device names, such as `CPU:0`.

    Raises `DeviceError` if requested devices are not available.
    """
    gpus = tf.config.list_physical_devices("GPU")
    wanted = len(gpus) if runtime.uses_all_gpus else runtime.num_gpus
    if wanted > len(gpus):
        available = format_count(len(gpus), "GPU") if gpus else "no GPU"
        raise DeviceError(
            f"got {wanted}, but this machine has {available}\n"
            f"allowed: 0 (the CPU){f' to {len(gpus)}' if gpus else ''}, or -1 for all GPUs"
            "\nset TF_CPP_MIN_LOG_LEVEL=0 to see why TensorFlow does not find a GPU",
            code="not-allowed",
        )
    if runtime.traits.uses_one_device:
        wanted = min(wanted, 1)
    tf.config.set_visible_devices(gpus[:wanted], "GPU")
    if wanted:
        return tuple(f"GPU:{index}" for index in range(wanted))
    return _divide_cpu(runtime.num_virtual_devices)


def note_unused_gpus(runtime: RuntimeConfig) -> None:
    """Names the GPUs of this machine if the config asks for none, once per process."""
    count = len(tf.config.list_physical_devices("GPU"))
    if not count or runtime.uses_accelerators:
        return
    which = f"the {count} GPUs of this machine are" if count > 1 else "the GPU of this machine is"
    advice = "use --num_gpus=1"
    if count > 1 and runtime.traits.uses_one_device:
        advice += f", or --num_gpus={count} --distribution_strategy=mirrored for all"
    elif count > 1:
        advice = f"use --num_gpus={count}"
    note_once(f"note: {which} not used, because runtime.num_gpus is 0; {advice}")


def _divide_cpu(count: int) -> tuple[str, ...]:
    (cpu,) = tf.config.list_physical_devices("CPU")
    current = len(tf.config.get_logical_device_configuration(cpu) or [None])
    if count > current:
        try:
            parts = [tf.config.LogicalDeviceConfiguration()] * count
            tf.config.set_logical_device_configuration(cpu, parts)
        except RuntimeError:
            raise DeviceError(
                f"got {count}, but TensorFlow has already started with {current} in "
                "this process; the number can be set only once per process",
                field="num_virtual_devices",
                code="too-late",
            ) from None
    return tuple(f"CPU:{index}" for index in range(count))


def local_devices(strategy: tf.distribute.Strategy) -> list[str]:
    """Returns the devices of this process that a strategy computes on, such as `CPU:0`."""
    try:
        names = strategy.extended.worker_devices
    except RuntimeError:  # With the default strategy, TensorFlow prefers the last device.
        names = [tf.config.list_logical_devices()[-1].name]
    return [name.rpartition("device:")[2] for name in names]


def peak_flops_of_gpus(strategy: tf.distribute.Strategy, dtype: str) -> float | None:
    """Returns the peak performance of the GPUs of a step together, in operations per second.

    `dtype` is the type of the values that are multiplied. All workers have the same GPUs. None on a
    CPU, and if the peak of the GPUs is not known, as with asynchronous workers.
    """
    if is_asynchronous(strategy):
        return None
    visible = tf.config.get_visible_devices("GPU")
    used = [name for name in local_devices(strategy) if "GPU" in name.upper()]
    details = [tf.config.experimental.get_device_details(gpu) for gpu in visible[: len(used)]]
    names = [str(gpu_details.get("device_name", "")) for gpu_details in details]
    return peak_of(names * Workers(strategy).count, dtype)
