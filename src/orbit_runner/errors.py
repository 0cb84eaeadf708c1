"""Errors that are meant for the person at the terminal, with the exit code they end in."""

from __future__ import annotations

from collections.abc import Sequence


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


class SettingError(RunnerError):
    """A setting that turned out to be wrong once the run was being built.

    Attributes:
        path: The dotted path of the setting, to which the caller adds where it was set.
        reason: What was got and what is allowed.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


def listed(lines: Sequence[str], most: int = 12) -> str:
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
