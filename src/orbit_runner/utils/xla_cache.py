"""A directory in which XLA caches compiled programs for later processes."""

from __future__ import annotations

import hashlib
import os
import platform
from importlib import metadata
from pathlib import Path

from orbit_runner.errors import SettingError

VARIABLE = "TF_XLA_FLAGS"
_PREFIX = "--tf_xla_persistent_cache_"


def prepare_xla_cache(directory: str) -> str:
    """Creates a cache directory, and returns the value of `TF_XLA_FLAGS` that enables it.

    Each version of TensorFlow and type of processor has its own subdirectory, because XLA's names
    of programs depend on neither. Raises SettingError if the directory cannot be created.
    """
    own = Path(directory).expanduser().resolve() / f"tensorflow-{_version()}-{_processor()}"
    try:
        own.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"cannot create {own}: {error.strerror}\nuse a writable directory"
        raise SettingError("runtime.xla_cache_dir", reason, code="not-writable") from error
    return " ".join([*other_xla_flags(), f"{_PREFIX}directory={own}"])


def other_xla_flags() -> list[str]:
    """Returns the flags in `TF_XLA_FLAGS` except those of the cache."""
    return [flag for flag in os.environ.get(VARIABLE, "").split() if not flag.startswith(_PREFIX)]


def _version() -> str:
    try:
        return metadata.version("tensorflow")
    except metadata.PackageNotFoundError:
        return "unknown"


def _processor() -> str:
    """Returns an id of the processor type, because programs may use all of its features."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = [platform.processor()]
    features = sorted(
        {line for line in lines if line.startswith(("flags", "Features", "model name"))}
    )
    digest = hashlib.sha256("\n".join(features or lines).encode()).hexdigest()
    return f"{platform.machine()}-{digest[:8]}"
