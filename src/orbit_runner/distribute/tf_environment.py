"""Environment variables that TensorFlow reads only once, when it is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.determinism import portable
from orbit_runner.utils import xla_cache
from orbit_runner.utils.deferred_imports import defer_imports
from orbit_runner.utils.streams import open_tolerant_stream

# The environment of this process when it imported TensorFlow, if it was forked after that.
_import_environment: Mapping[str, str] | None = None


class ImportedTooEarly(BaseException):
    """Raised if TensorFlow was imported before a variable was set: a new process must be started.

    Not an `Exception`, because no part of a run can handle it.
    """


def set_import_environment(environ: Mapping[str, str]) -> None:
    """Records the environment with which TensorFlow was imported, before the config was known."""
    global _import_environment
    _import_environment = dict(environ)


def required_variables(runtime: RuntimeConfig) -> Iterator[tuple[str, str]]:
    """Yields the names and values of the environment variables that the settings require."""
    if runtime.gpu_thread_mode:
        yield "TF_GPU_THREAD_MODE", runtime.gpu_thread_mode
    if runtime.per_gpu_thread_count:
        yield "TF_GPU_THREAD_COUNT", str(runtime.per_gpu_thread_count)
    if runtime.batchnorm_spatial_persistent:
        yield "TF_USE_CUDNN_BATCHNORM_SPATIAL_PERSISTENT", "1"
    if runtime.xla_cache_dir:
        yield xla_cache.VARIABLE, xla_cache.prepare_xla_cache(runtime.xla_cache_dir)
    if runtime.enable_winograd_nonfused is not None:
        yield "TF_ENABLE_WINOGRAD_NONFUSED", str(int(runtime.enable_winograd_nonfused))
    if runtime.is_portable:  # Last: it also unsets variables.
        yield from portable.VARIABLES.items()


def prepare_environment(runtime: RuntimeConfig) -> None:
    """Sets the environment variables. Must be called before TensorFlow is imported.

    Raises `ImportedTooEarly` in a process that was forked after the import, if it needs others, and
    `RunnerError` if Python runs without docstrings.
    """
    # The messages of TensorFlow's C++ code at startup bury the runner's own, even at the error
    # level: on a CPU it reports that there is no CUDA driver. Errors in ops are raised as Python
    # exceptions in any case.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # The runner and Model Garden use Keras 2. Without this, TensorFlow also imports Keras 3 and its
    # dependencies, which takes a fifth of the time until the first step.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    defer_imports()
    required = dict(required_variables(runtime))
    if _import_environment is not None:
        late = [name for name, value in required.items() if _import_environment.get(name) != value]
        if late:
            raise ImportedTooEarly(f"{', '.join(late)} must be set before TensorFlow is imported")
    os.environ.update(required)


def redirect_native_output(path: Path | None) -> None:
    """Redirects what TensorFlow's native code writes to stderr to a file; None discards it.

    In a cluster, the native code reports each connection that opens or closes, whatever the log
    level is, which would bury the messages of this program. If `TF_CPP_MIN_LOG_LEVEL` is 0 or 1,
    nothing is redirected.
    """
    if int(os.environ.get("TF_CPP_MIN_LOG_LEVEL") or 0) < 2:
        return
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr = open_tolerant_stream(os.dup(2), sys.stderr)
    kept = os.open(path or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(kept, 2)
    os.close(kept)
