"""Configs from settings by dotted path; imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.experiment import ExperimentConfig


def config_of(base: Mapping[str, Any], **changes: Any) -> ExperimentConfig:
    """Returns a config; `__` in a name stands for a dot, None for `null`."""
    settings = {**base, **{key.replace("__", "."): value for key, value in changes.items()}}
    flags = tuple(
        (f"--{path}", path, "null" if value is None else str(value))
        for path, value in settings.items()
    )
    return resolve(Request(flags=flags)).config
