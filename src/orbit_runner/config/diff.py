"""The differences between two configs."""

from __future__ import annotations

import dataclasses
from typing import Any

from orbit_runner.config.schema.base import Config
from orbit_runner.config.serialize import flat_settings, inline_yaml

_MISSING = object()
# The text of a setting that a config does not have. A string `-` is written in quotes.
ABSENT = "-"


@dataclasses.dataclass(frozen=True)
class Difference:
    """A setting with different values. `-` means that the config does not have the setting."""

    path: str
    left: str
    right: str


def differences(left: Config, right: Config) -> list[Difference]:
    """Returns the settings that differ, those of `left` first, in the order of declaration."""
    a, b = flat_settings(left), flat_settings(right)
    paths = [*a, *(path for path in b if path not in a)]
    return [
        Difference(path, _format(a.get(path, _MISSING)), _format(b.get(path, _MISSING)))
        for path in paths
        if a.get(path, _MISSING) != b.get(path, _MISSING)
    ]


def _format(value: Any) -> str:
    return ABSENT if value is _MISSING else inline_yaml(value)
