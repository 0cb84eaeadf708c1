"""The origin of a value: a file and line, a flag, or the default."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where a value was set."""

    label: str  # A file as the user wrote it, a flag such as `--gin_param[0]`, or `default`.
    line: int | None = None  # Counted from 1; None for flags and defaults.
    layer: int = 0  # The precedence: a higher layer overrides lower ones.
    note: str = ""  # For references, where their values were set: `= ${name} (default)`.

    @property
    def place(self) -> str:
        """The label and the line."""
        return self.label if self.line is None else f"{self.label}:{self.line}"

    def __str__(self) -> str:
        return f"{self.place} {self.note}" if self.note else self.place


DEFAULT = Origin("default")


def parent_path(path: str) -> str:
    """Returns the dotted path of the section or list that contains a setting, or ""."""
    return path.rpartition("[" if path.endswith("]") else ".")[0]
