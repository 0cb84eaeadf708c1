"""What the folder of a run says of how its weights came about; read once, as it may be going on."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.latest_checkpoint import checkpoints_of
from orbit_runner.config.schema.modes import TRAINING
from orbit_runner.run_directory.paths import RunDirectory

_OVERRIDES = ("--resume=override", "override", "--allow_partial", "--allow-partial")


@dataclasses.dataclass(frozen=True)
class Fingerprints:
    """What tells one checkpoint from another.

    Attributes:
        weights: SHA-256 of the weights.
        state: SHA-256 of all that it holds.
    """

    weights: str
    state: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunHistory:
    """The trail of a run.

    Attributes:
        folder: The folder of the run.
        fingerprints: Those of each checkpoint ever made, by step.
        losses: The training loss of each record, by step; None where it was no number.
        attempts: What `run.json` holds of each start that trained.
    """

    folder: Path
    fingerprints: Mapping[int, Fingerprints]
    losses: Mapping[int, float | None]
    attempts: tuple[Mapping[str, Any], ...] = ()

    @property
    def checkpoints(self) -> CheckpointFolder:
        """The folder of its checkpoints."""
        return checkpoints_of(self.folder)

    @property
    def mode(self) -> str:
        """The mode in which it trained last."""
        modes = [mode for one in self.attempts if (mode := one.get("mode")) in TRAINING]
        return modes[-1] if modes else "train_and_eval"

    @property
    def ends(self) -> list[int]:
        """The steps at which it was done, before it was started again with more of them."""
        done = (one.get("step") for one in self.attempts if one.get("outcome") == "done")
        return sorted({step for step in done if isinstance(step, int)})

    @property
    def overridden(self) -> bool:
        """Whether it went on with another config, or from a part of a checkpoint."""
        words = (str(word) for one in self.attempts for word in one.get("argv") or ())
        return any(word in _OVERRIDES for word in words)


def read_history(folder: Path) -> RunHistory:
    """Reads the trail of a run.

    Args:
        folder: The folder of the run.

    Returns:
        Its trail; empty where the files are missing.
    """
    return RunHistory(
        folder=folder,
        fingerprints={**_read_records(folder), **_trail(RunDirectory(folder).fingerprints)},
        losses={
            line["step"]: line["training_loss"]
            for line in _lines(RunDirectory(folder).metrics)
            if line.get("split") == "train" and "training_loss" in line
        },
        attempts=tuple(_attempts(RunDirectory(folder).record("train"))),
    )


def _trail(path: Path) -> dict[int, Fingerprints]:
    # The last line of a step counts: the run may have gone back before it.
    return {
        line["step"]: Fingerprints(str(line.get("weights")), str(line.get("state")))
        for line in _lines(path)
    }


def _read_records(folder: Path) -> dict[int, Fingerprints]:
    """Returns what the records of checkpoints say: a kill may have come before the trail's line."""
    found, checkpoints = {}, checkpoints_of(folder)
    for step in checkpoints.steps():
        try:
            record = checkpoints.record(step)
        except (OSError, ValueError):
            continue
        if record is not None:
            found[step] = Fingerprints(record.weights, record.state)
    return found


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            found = json.loads(line)
        except ValueError:
            continue  # A killed process left it half written.
        if isinstance(found, dict) and isinstance(found.get("step"), int):
            yield found


def _attempts(path: Path) -> list[Mapping[str, Any]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["attempts"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
