"""What differs between two configs."""

from __future__ import annotations

import dataclasses
from typing import Any

from orbit_runner.config.schema.base import Config
from orbit_runner.config.serialize import flat, inline

_ABSENT = object()


@dataclasses.dataclass(frozen=True)
class Difference:
    """One setting whose values differ; `-` stands for a setting that one side does not have."""

    path: str
    left: str
    right: str


def differences(left: Config, right: Config) -> list[Difference]:
    """Compares two configs setting by setting.

    Args:
        left: One config.
        right: The other.

    Returns:
        The settings that differ, in the order of the tree.
    """
    a, b = flat(left), flat(right)
    paths = [*a, *(path for path in b if path not in a)]
    return [
        Difference(path, _format(a.get(path, _ABSENT)), _format(b.get(path, _ABSENT)))
        for path in paths
        if a.get(path, _ABSENT) != b.get(path, _ABSENT)
    ]


def _format(value: Any) -> str:
    return "-" if value is _ABSENT else inline(value)
