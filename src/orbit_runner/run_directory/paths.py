"""`RunDirectory`: the files of a run by their names. Imports no tensorflow."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from orbit_runner.errors import RunnerError

CHECKPOINTS, CONFIG = "checkpoints", "config.yaml"


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """A run directory (`--model_dir`).

    Attributes:
        path: Its path.
    """

    path: Path

    @property
    def config(self) -> Path:
        """The resolved config, with the origin of each value."""
        return self.path / CONFIG

    @property
    def checkpoints(self) -> Path:
        """The directory of the checkpoints, `ckpt-STEP`."""
        return self.path / CHECKPOINTS

    @property
    def fingerprints(self) -> Path:
        """The fingerprints of each checkpoint that was ever saved, a line each."""
        return self.checkpoints / "fingerprints.jsonl"

    @property
    def settings(self) -> Path:
        """The directory of the settings behind the fingerprints of configs."""
        return self.checkpoints / "configs"

    @property
    def metrics(self) -> Path:
        """The records of training and evaluation, a line each."""
        return self.path / "metrics.jsonl"

    @property
    def data(self) -> Path:
        """What files the run has read."""
        return self.path / "data.json"

    def record(self, mode: str) -> Path:
        """Returns the record of the starts: command, versions, devices, results.

        An evaluation may run beside training in the same directory, so it has one of its own.

        Args:
            mode: The mode of the run.
        """
        return self.path / ("run.json" if mode.startswith("train") else f"run.{mode}.json")

    def require_config(self) -> Path:
        """Returns the path of the config.

        Raises:
            RunnerError: There is none, so this is no run directory.
        """
        if not self.config.is_file():
            there = f"has no {CONFIG}" if self.path.is_dir() else "is no directory"
            raise RunnerError(
                f"RUN: {self.path} {there}\ngive a run directory, such as runs/digits/a"
            )
        return self.config
