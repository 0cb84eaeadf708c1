"""The interface between the workers of a sweep and the processes that train."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialCommand:
    """How to train a trial up to a step.

    Attributes:
        arguments: The arguments of `runner`, such as `("run", "--experiment=digits", …)`.
        environ: The complete environment.
        cores: The cores that the process may use; empty for all.
        log: The file to which its output is appended.
    """

    arguments: tuple[str, ...]
    environ: Mapping[str, str]
    cores: tuple[int, ...]
    log: Path


class TrialProcess(Protocol):
    """A process that trains. It ends when the process that started it ends."""

    @property
    def pid(self) -> int:
        """The process id."""

    def poll(self) -> int | None:
        """Returns the exit code, negative for a signal; None while the process runs."""

    def send_signal(self, number: int) -> None:
        """Sends a signal; does nothing if the process has ended."""


class TrialLauncher(Protocol):
    """Starts processes that train."""

    def start(self, command: TrialCommand) -> TrialProcess:
        """Starts a process."""

    def close(self) -> None:
        """Ends the processes that the launcher keeps between trials."""
