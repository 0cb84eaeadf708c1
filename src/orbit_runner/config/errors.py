"""What is wrong with a config: collected, then shown all at once on one screen."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from orbit_runner.config.provenance import Origin
from orbit_runner.errors import RunnerError, shorten

_SHOWN, _ALL = 12, 200
# Longer than any list of allowed names, and short enough for a screen.
_LINE = 2000


@dataclasses.dataclass(frozen=True)
class Problem:
    """One mistake.

    Attributes:
        path: The dotted path of the value (`task.model.depth`), or "" for a whole file.
        origin: Where the value was set; None where nothing set it.
        message: What was got and what is allowed, in one or a few short lines.
    """

    path: str
    message: str
    origin: Origin | None = None

    def __str__(self) -> str:
        place = " — ".join(shorten(str(part)) for part in (self.path, self.origin) if part)
        body = "\n    ".join(shorten(line, _LINE) for line in self.message.split("\n"))
        return f"  {place}\n    {body}" if place else f"  {body}"


class ConfigError(RunnerError):
    """A config that does not resolve, with every problem that was found in it."""

    def __init__(self, problems: Iterable[Problem], *, every: bool = False) -> None:
        self.problems: tuple[Problem, ...] = tuple(dict.fromkeys(problems))
        super().__init__(self._text(_ALL if every else _SHOWN))

    def _text(self, shown: int) -> str:
        count = len(self.problems)
        title = f"{count} problem{'s' if count > 1 else ''} in the configuration"
        return "\n".join([title, *_lines(self.problems, shown)])


def note_text(notes: Sequence[Problem], *, shown: int = _SHOWN) -> str:
    """Returns one note about all settings that do nothing.

    Args:
        notes: The settings, each with the reason.
        shown: How many are listed.

    Returns:
        Several lines.
    """
    count = len(notes)
    title = "1 setting has no effect" if count == 1 else f"{count} settings have no effect"
    return "\n".join([f"note: {title}; --strict makes this an error", *_lines(notes, shown)])


def _lines(problems: Sequence[Problem], shown: int) -> list[str]:
    lines = [str(problem) for problem in problems[:shown]]
    more = len(problems) - shown
    return [*lines, f"  … and {more} more"] if more > 0 else lines
