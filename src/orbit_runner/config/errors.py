"""Errors in a config. All problems are collected, then reported together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from orbit_runner.config.provenance import Origin
from orbit_runner.errors import RunnerError, shorten

_SHOWN, _ALL = 12, 200
# In characters. Longer than any list of allowed names, and short enough for a terminal.
_LINE = 2000


@dataclasses.dataclass(frozen=True)
class Problem:
    """A single problem in a config."""

    path: str  # Dotted path (`task.model.depth`), or "" for a whole file.
    message: str
    origin: Origin | None = None  # Where the value was set; None if it was not set.

    def __str__(self) -> str:
        place = " — ".join(shorten(str(part)) for part in (self.path, self.origin) if part)
        body = "\n    ".join(shorten(line, _LINE) for line in self.message.split("\n"))
        return f"  {place}\n    {body}" if place else f"  {body}"


class ConfigError(RunnerError):
    """An invalid config, with all problems that were found."""

    def __init__(self, problems: Iterable[Problem], *, every: bool = False) -> None:
        self.problems: tuple[Problem, ...] = tuple(dict.fromkeys(problems))
        super().__init__(self._text(_ALL if every else _SHOWN))

    def _text(self, shown: int) -> str:
        count = len(self.problems)
        title = f"{count} problem{'s' if count > 1 else ''} in the configuration"
        return "\n".join([title, *_lines(self.problems, shown)])


def note_text(notes: Sequence[Problem], *, shown: int = _SHOWN) -> str:
    """Returns a note that lists settings without effect, at most `shown` of them."""
    count = len(notes)
    title = "1 setting has no effect" if count == 1 else f"{count} settings have no effect"
    return "\n".join([f"note: {title}; --strict makes this an error", *_lines(notes, shown)])


def _lines(problems: Sequence[Problem], shown: int) -> list[str]:
    lines = [str(problem) for problem in problems[:shown]]
    more = len(problems) - shown
    return [*lines, f"  … and {more} more"] if more > 0 else lines
