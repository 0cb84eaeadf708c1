"""Memory and processor use of the process that writes the records of training."""

from __future__ import annotations

import time

import psutil
import tensorflow as tf

from orbit_runner.run_directory.metric_records import SYSTEM

# Over a shorter time, the share of the processor is a matter of chance.
_SHORTEST_SECONDS = 0.1
_GIB = 2.0**30


class SystemMetrics:
    """Measures the process and the machine. Records within a tenth of a second share the values."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        count = len(tf.config.list_logical_devices("GPU"))
        self._gpus = [f"GPU:{n}" for n in range(count) if _has_memory_info(f"GPU:{n}")]
        self._values: dict[str, float] = {}
        self._process.cpu_percent()  # The first call only starts the measurement.
        self._measured_at = time.monotonic()

    def __call__(self) -> dict[str, float]:
        """Returns the values by name. The share of the processor is that since the last values."""
        now = time.monotonic()
        if not self._values or now - self._measured_at >= _SHORTEST_SECONDS:
            self._values, self._measured_at = self._measure(), now
        return self._values

    def _measure(self) -> dict[str, float]:
        found = {
            f"{SYSTEM}memory_gib": self._process.memory_info().rss / _GIB,
            f"{SYSTEM}cpu_percent": self._process.cpu_percent(),
            f"{SYSTEM}machine_memory_percent": psutil.virtual_memory().percent,
        }
        if self._gpus:
            # The bytes of tensors, not those that TensorFlow only reserves.
            used = [tf.config.experimental.get_memory_info(name) for name in self._gpus]
            found[f"{SYSTEM}gpu_memory_gib"] = max(one["current"] for one in used) / _GIB
            found[f"{SYSTEM}gpu_peak_memory_gib"] = max(one["peak"] for one in used) / _GIB
        return found


def _has_memory_info(name: str) -> bool:
    try:
        tf.config.experimental.get_memory_info(name)
    except (ValueError, tf.errors.OpError):  # Not every allocator counts.
        return False
    return True
