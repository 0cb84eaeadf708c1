"""Selects the devices that an experiment runs on."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import tensorflow as tf

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.errors import SettingError, format_count
from orbit_runner.utils.flops import peak_of
from orbit_runner.utils.log import note

# The part of a GPU's memory that virtual GPUs share; the rest is for CUDA and its libraries.
_SHARED_MEMORY = 0.9
_MIB = 2**20
_CUDA_DRIVER = "libcuda.so.1"


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
        raise DeviceError(
            f"got {wanted}, but this machine has {_describe(gpus)}\n"
            f"allowed: 0 (the CPU){f' to {len(gpus)}' if gpus else ''}, or -1 for all GPUs"
            "\nset TF_CPP_MIN_LOG_LEVEL=0 to see why TensorFlow does not find a GPU",
            code="not-allowed",
        )
    if runtime.traits.uses_one_device:
        wanted = min(wanted, 1)
    tf.config.set_visible_devices(gpus[:wanted], "GPU")
    if runtime.divides_gpu:
        return _divide_device(gpus[0], runtime.num_virtual_devices, _parts_of_gpu)
    if wanted:
        return tuple(f"GPU:{index}" for index in range(wanted))
    (cpu,) = tf.config.list_physical_devices("CPU")
    return _divide_device(cpu, runtime.num_virtual_devices, _parts_of_cpu)


def note_unused_gpus(runtime: RuntimeConfig) -> None:
    """Names the GPUs of this machine if the config asks for none, once per process."""
    count = len(tf.config.list_physical_devices("GPU"))
    if count and not runtime.uses_accelerators:
        _note_once(count, runtime.traits.uses_one_device)


@functools.cache
def _note_once(count: int, uses_one_device: bool) -> None:
    which = f"the {count} GPUs of this machine are" if count > 1 else "the GPU of this machine is"
    advice = "use --num_gpus=1"
    if count > 1 and uses_one_device:
        advice += f", or --num_gpus={count} --distribution_strategy=mirrored for all"
    elif count > 1:
        advice = f"use --num_gpus={count}"
    note(f"note: {which} not used, because runtime.num_gpus is 0; {advice}")


def _describe(gpus: list[object]) -> str:
    return format_count(len(gpus), "GPU") if gpus else "no GPU"


def _divide_device(
    device: tf.config.PhysicalDevice,
    count: int,
    make_parts: Callable[[int], list[tf.config.LogicalDeviceConfiguration]],
) -> tuple[str, ...]:
    current = len(tf.config.get_logical_device_configuration(device) or [None])
    if count > current:
        try:
            tf.config.set_logical_device_configuration(device, make_parts(count))
        except RuntimeError:
            raise DeviceError(
                f"got {count}, but TensorFlow has already started with {current} in "
                "this process; the number can be set only once per process",
                field="num_virtual_devices",
                code="too-late",
            ) from None
    return tuple(f"{device.device_type}:{index}" for index in range(count))


def _parts_of_cpu(count: int) -> list[tf.config.LogicalDeviceConfiguration]:
    return [tf.config.LogicalDeviceConfiguration()] * count


def _parts_of_gpu(count: int) -> list[tf.config.LogicalDeviceConfiguration]:
    """Returns equal parts of a GPU. TensorFlow requires a limit in MiB for each of them."""
    total = gpu_memory()
    if total is None:
        raise DeviceError(
            f"got {count} with num_gpus: 1, but the size of the GPU's memory, which they share, "
            f"is unknown, because the CUDA driver ({_CUDA_DRIVER}) cannot be used\n"
            "allowed: 1; or set runtime.num_gpus to 0, for virtual devices on the CPU",
            field="num_virtual_devices",
            code="not-supported",
        )
    limit = int(total * _SHARED_MEMORY) // count // _MIB
    return [tf.config.LogicalDeviceConfiguration(memory_limit=limit)] * count


def gpu_memory() -> int | None:
    """Returns the bytes of memory of the first visible GPU, or None if CUDA's driver is missing."""
    device = ctypes.c_int()
    total = ctypes.c_size_t()
    try:
        driver = ctypes.CDLL(_CUDA_DRIVER)
        failed = (
            driver.cuInit(0)
            or driver.cuDeviceGet(ctypes.byref(device), 0)
            or driver.cuDeviceTotalMem_v2(ctypes.byref(total), device)
        )
    except (OSError, AttributeError):  # There is no such library, or no such function.
        return None
    return None if failed else total.value


def local_devices(strategy: tf.distribute.Strategy) -> list[str]:
    """Returns the devices of this process that a strategy computes on, such as `CPU:0`."""
    try:
        names = strategy.extended.worker_devices
    except RuntimeError:  # With the default strategy, TensorFlow prefers the last device.
        names = [tf.config.list_logical_devices()[-1].name]
    return [name.rpartition("device:")[2] for name in names]


def peak_flops_of_gpus(strategy: tf.distribute.Strategy, dtype: str) -> float | None:
    """Returns the peak performance of this process's GPUs together, in operations per second.

    `dtype` is the type of the values that are multiplied. None on a CPU, and if the peak of the
    GPUs is not known.
    """
    # Virtual GPUs share one of these.
    visible = tf.config.get_visible_devices("GPU")
    used = [name for name in local_devices(strategy) if "GPU" in name.upper()]
    details = [tf.config.experimental.get_device_details(gpu) for gpu in visible[: len(used)]]
    return peak_of([str(gpu_details.get("device_name", "")) for gpu_details in details], dtype)
