"""Errors that are meant for the person at the terminal, with the exit code they end in."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

# Longer than any name, and short enough for a screen.
_NAME = 200
_AFTER_DIVERGENCE = (
    "lower the learning rate, check the data, or set trainer.recovery_max_trials to return to the "
    "last checkpoint"
)


class RunnerError(Exception):
    """Something the user can mend; shown as one message, never as a traceback."""

    exit_code = 2


class DataError(RunnerError):
    """A data set that is missing, truncated or mangled.

    Attributes:
        field: The name of the data setting to blame (`data_dir`, `input_path`, …), from which the
            caller makes the dotted path and the origin.
    """

    def __init__(self, message: str, *, field: str = "data_dir") -> None:
        super().__init__(message)
        self.field = field


class OutputError(RunnerError):
    """Results that could not be written to standard output; the command itself is done."""

    exit_code = 6


class ClosedPipeError(OutputError):
    """The reader of standard output has ended (`runner list | head`): nothing to report."""

    exit_code = 0


class Diverged(RunnerError, RuntimeError):
    """Training diverged; a RuntimeError, as Model Garden's."""

    exit_code = 3

    def __init__(self, reason: str) -> None:
        """Makes the error.

        Args:
            reason: What was found, and at which step.
        """
        super().__init__(f"training diverged: {reason}\n{_AFTER_DIVERGENCE}")
        self.reason = reason


class SettingError(RunnerError):
    """A setting that turned out to be wrong once the run was being built.

    Attributes:
        path: The dotted path of the setting, to which the caller adds where it was set.
        reason: What was got and what is allowed.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


def format_list(lines: Sequence[str], most: int = 12) -> str:
    """Returns lines one below the other, indented, and how many there are beyond a screenful.

    Args:
        lines: The lines.
        most: How many are shown.
    """
    more = [f"  … and {len(lines) - most} more"] if lines[most:] else []
    return "\n".join([f"  {line}" for line in lines[:most]] + more)


def first_line(error: BaseException) -> str:
    """Returns the first line of another library's message, cut to one screen line or two.

    Args:
        error: What was raised.
    """
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def shorten(text: str, most: int = _NAME) -> str:
    """Returns a text, or its beginning and its length where it is longer than a limit.

    Args:
        text: What a message is to show.
        most: The limit, in characters.
    """
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def nearest(name: str, known: Iterable[str]) -> str:
    """Says which known name is meant.

    Args:
        name: What was written.
        known: The names there are.

    Returns:
        A clause such as `; did you mean 'depth'?`, or "" where nothing is near.
    """
    if len(str(name)) > _NAME:
        return ""
    by_lower = {option.lower(): option for option in known}
    match = difflib.get_close_matches(str(name).lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[match[0]]!r}?" if match else ""


def unknown(kind: str, name: object, known: Sequence[str]) -> str:
    """Words the answer to an unknown name: the nearest one, then all there are.

    Args:
        kind: What was looked for, such as `task`.
        name: What was written.
        known: The names there are.

    Returns:
        A message of two lines.
    """
    listed = ", ".join(sorted(known)) or "none"
    return f"unknown {kind} {shorten(repr(name))}{nearest(str(name), known)}\nallowed: {listed}"
