"""Environment variables that TensorFlow reads only once, when it is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.determinism import portable
from orbit_runner.utils.deferred_imports import defer_imports
from orbit_runner.utils.streams import open_tolerant_stream


def required_variables(runtime: RuntimeConfig) -> Iterator[tuple[str, str]]:
    """Yields the names and values of the environment variables that the settings require."""
    if runtime.is_portable:
        yield from portable.VARIABLES.items()


def prepare_environment(runtime: RuntimeConfig) -> None:
    """Sets the environment variables. Must be called before TensorFlow is imported."""
    # The messages of TensorFlow's C++ code at startup bury the runner's own, even at the error
    # level: on a CPU it reports that there is no CUDA driver. Errors in ops are raised as Python
    # exceptions in any case.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # The runner and Model Garden use Keras 2. Without this, TensorFlow also imports Keras 3 and its
    # dependencies, which takes a fifth of the time until the first step.
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    defer_imports()
    os.environ.update(required_variables(runtime))


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
    descriptor = os.open(path or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(descriptor, 2)
    os.close(descriptor)
