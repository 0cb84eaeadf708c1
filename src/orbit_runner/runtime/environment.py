"""Environment variables that TensorFlow reads once, when it is imported."""

from __future__ import annotations

import os
from collections.abc import Iterator

from orbit_runner.config.runtime import RuntimeConfig


def variables(runtime: RuntimeConfig) -> Iterator[tuple[str, str]]:
    """Yields the variables that the settings ask for.

    Args:
        runtime: The settings.
    """
    if runtime.gpu_thread_mode:
        yield "TF_GPU_THREAD_MODE", runtime.gpu_thread_mode
    if runtime.per_gpu_thread_count:
        yield "TF_GPU_THREAD_COUNT", str(runtime.per_gpu_thread_count)
    if runtime.batchnorm_spatial_persistent:
        yield "TF_USE_CUDNN_BATCHNORM_SPATIAL_PERSISTENT", "1"


def prepare_environment(runtime: RuntimeConfig) -> None:
    """Sets the variables; to be called before tensorflow is imported.

    Args:
        runtime: The settings.
    """
    # Start-up notes of TensorFlow's C++ side bury the runner's own lines, the error level included:
    # at each start on a CPU it reports that there is no CUDA driver. What goes wrong in an op
    # reaches Python as an exception in any case.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.update(variables(runtime))
