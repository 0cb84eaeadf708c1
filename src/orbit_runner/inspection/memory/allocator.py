"""The memory that TensorFlow's allocator uses on a device."""

from __future__ import annotations

import os

import tensorflow as tf

# Read when TensorFlow starts. Its default CPU allocator keeps no complete statistics.
_BFC_VARIABLE = "TF_CPU_ALLOCATOR_USE_BFC"


def enable_cpu_memory_stats() -> None:
    """Makes the CPU allocator keep statistics, as that of a GPU does. Must precede the first op."""
    os.environ[_BFC_VARIABLE] = "true"


def measurable_device() -> str:
    """Returns the device whose memory can be measured, or "" if there is none."""
    device = "GPU:0" if tf.config.list_logical_devices("GPU") else "CPU:0"
    try:
        bytes_in_use(device)
    except (ValueError, RuntimeError):
        return ""
    return device


def concurrent_ops() -> int:
    """Returns how many ops of a step can use memory at the same time."""
    if tf.config.list_logical_devices("GPU"):
        return 1  # A GPU computes them one after the other.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return tf.config.threading.get_inter_op_parallelism_threads() or cores or 1


def bytes_in_use(device: str) -> int:
    """Returns the bytes of all tensors and variables on a device."""
    return int(tf.config.experimental.get_memory_info(device)["current"])


def peak_bytes(device: str) -> int:
    """Returns the largest number of bytes in use since `reset_peak`."""
    return int(tf.config.experimental.get_memory_info(device)["peak"])


def reset_peak(device: str) -> None:
    """Sets the peak to the bytes in use."""
    tf.config.experimental.reset_memory_stats(device)
