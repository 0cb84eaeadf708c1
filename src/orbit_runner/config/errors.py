"""Where the values of a config were set, and its problems, which are reported together."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from orbit_runner.error_codes import UNSPECIFIC
from orbit_runner.errors import RunnerError, format_count, nearest_multiples, shorten
from orbit_runner.utils.streams import line_text

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

_MAX_SHOWN = 12
_MAX_SHOWN_OF_ALL = 200
# In characters. Longer than any list of allowed names, and short enough for a terminal.
_MAX_LINE_LENGTH = 2000


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where a value was set."""

    label: str  # A file as the user wrote it, a flag such as `--gin_param[0]`, or `default`.
    line: int | None = None  # Counted from 1; None for flags and defaults.
    layer: int = 0  # The precedence: a higher layer overrides lower ones.

    def __str__(self) -> str:
        return self.label if self.line is None else f"{self.label}:{self.line}"


DEFAULT = Origin("default")


def nearest_origin(origins: Mapping[str, Origin], path: str) -> Origin | None:
    """Returns the origin of a setting or of its nearest section that was set, or None."""
    while path and path not in origins:
        path = path.rpartition("[" if path.endswith("]") else ".")[0]
    return origins.get(path)


@dataclasses.dataclass(frozen=True)
class Problem:
    """A single problem in a config."""

    path: str  # Dotted path (`task.model.depth`), or "" for a whole file.
    message: str
    origin: Origin | None = None  # Where the value was set; None if it was not set.
    code: str = UNSPECIFIC  # One of `error_codes.CODES`.

    @classmethod
    def of(cls, problem: Problem | tuple[str, str]) -> Problem:
        """Returns a problem as it is, or that of a pair of path and message, without a code."""
        return problem if isinstance(problem, Problem) else cls(*problem)

    def below(self, section: str) -> Problem:
        """Returns the same problem, with the path as seen from outside of a section."""
        return dataclasses.replace(self, path=f"{section}.{self.path}" if section else self.path)

    def at(self, origin: Origin | None) -> Problem:
        """Returns the same problem, with the place where the value was set."""
        return dataclasses.replace(self, origin=origin)

    def as_dict(self) -> JsonObject:
        """Returns the problem as `--json` prints it."""
        origin = self.origin and {"label": self.origin.label, "line": self.origin.line}
        return {"code": self.code, "path": self.path, "origin": origin, "message": self.message}

    def __str__(self) -> str:
        parts = (line_text(str(part)) for part in (self.path, self.origin) if part)
        place = " — ".join(map(shorten, parts))
        body = "\n    ".join(shorten(line, _MAX_LINE_LENGTH) for line in self.message.split("\n"))
        return f"  {place}\n    {body}" if place else f"  {body}"


# Problems with a code, from a path and a message.
conflict = functools.partial(Problem, code="conflict")  # The value contradicts another one.
no_effect = functools.partial(Problem, code="no-effect")  # Nothing uses the value.
not_allowed = functools.partial(Problem, code="not-allowed")
not_set = functools.partial(Problem, code="not-set")
not_supported = functools.partial(Problem, code="not-supported")  # By others, or by the code.
out_of_range = functools.partial(Problem, code="out-of-range")
wrong_type = functools.partial(Problem, code="wrong-type")


def not_divisible(path: str, number: int, divisor: int, named: str) -> Problem:
    """Returns the problem with a number that is not a multiple of another, called `named`."""
    nearest = nearest_multiples(number, divisor)
    message = f"got {number}, which is not a multiple of {named}\nnearest: {nearest}"
    return Problem(path, message, code="not-divisible")


class ConfigError(RunnerError):
    """An invalid config, with all its problems."""

    def __init__(self, problems: Iterable[Problem], *, show_all: bool = False) -> None:
        self.problems: tuple[Problem, ...] = tuple(dict.fromkeys(problems))
        codes = [problem.code for problem in self.problems]
        text = self._format(_MAX_SHOWN_OF_ALL if show_all else _MAX_SHOWN)
        super().__init__(text, code=next(iter(codes), UNSPECIFIC))

    @classmethod
    def of(
        cls, path: str, message: str, origin: Origin | None = None, code: str = UNSPECIFIC
    ) -> ConfigError:
        """Returns the error with a single problem."""
        return cls([Problem(path, message, origin, code)])

    def as_dicts(self) -> list[JsonObject]:
        """Returns what `--json` prints of the error: an object for each problem."""
        return [problem.as_dict() for problem in self.problems]

    def _format(self, shown: int) -> str:
        count = len(self.problems)
        title = f"{format_count(count, 'problem')} in the configuration"
        return "\n".join([title, *_format_lines(self.problems, shown)])


def note_text(notes: Sequence[Problem]) -> str:
    """Returns a note that lists settings without effect."""
    count = len(notes)
    title = "1 setting has no effect" if count == 1 else f"{count} settings have no effect"
    return "\n".join([f"note: {title}", *_format_lines(notes, _MAX_SHOWN)])


def _format_lines(problems: Sequence[Problem], shown: int) -> list[str]:
    lines = [str(problem) for problem in problems[:shown]]
    more = len(problems) - shown
    return [*lines, f"  … and {more} more"] if more > 0 else lines
