"""Errors that are meant for the person at the terminal, with the exit code they end in."""

from __future__ import annotations


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
