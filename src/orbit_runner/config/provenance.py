"""Where a value came from: a file and line, a flag, or the default."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Origin:
    """The place that set a value.

    Attributes:
        label: A file as the user named it, a flag such as `--gin_param[0]`, or `default`.
        line: The line in that file, counted from 1; None for flags and defaults.
        layer: The rank in the order of precedence; a higher layer wins.
    """

    label: str
    line: int | None = None
    layer: int = 0

    def __str__(self) -> str:
        return self.label if self.line is None else f"{self.label}:{self.line}"


DEFAULT = Origin("default")
