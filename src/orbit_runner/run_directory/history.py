"""The history of a run, read from its run directory.

It is read only once, because the run may still be in progress.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.latest_checkpoint import checkpoints_of
from orbit_runner.config.schema.modes import TRAINING
from orbit_runner.run_directory.metric_records import AVERAGED_STEPS
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.utils.files import read_lines

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

_OVERRIDES = ("--resume=override", "override")


@dataclasses.dataclass(frozen=True)
class Fingerprints:
    """The SHA-256 fingerprints that identify a checkpoint."""

    weights: str  # Of the weights.
    state: str  # Of the whole checkpoint.


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunHistory:
    """The history of a run."""

    folder: Path
    fingerprints: Mapping[int, Fingerprints]  # By step, of every checkpoint ever saved.
    losses: Mapping[int, float | None]  # Training losses by step; None if not a number.
    # The entries of `run.json`, one for each start that trained.
    attempts: tuple[JsonObject, ...] = ()

    @property
    def checkpoints(self) -> CheckpointFolder:
        """The checkpoint directory of the run."""
        return checkpoints_of(self.folder)

    @property
    def mode(self) -> str:
        """The mode in which the run last trained; `train_and_eval` if none is recorded."""
        modes = [mode for attempt in self.attempts if (mode := attempt.get("mode")) in TRAINING]
        return modes[-1] if modes else "train_and_eval"

    @property
    def ends(self) -> list[int]:
        """The steps at which the run was complete; it may have been resumed for more steps."""
        done = (
            attempt.get("step") for attempt in self.attempts if attempt.get("outcome") == "done"
        )
        return sorted({step for step in done if isinstance(step, int)})

    @property
    def is_overridden(self) -> bool:
        """Whether the run was resumed with another config, or from part of a checkpoint."""
        arguments = [attempt.get("argv") for attempt in self.attempts]
        words = (str(word) for argv in arguments if isinstance(argv, list) for word in argv)
        return any(word in _OVERRIDES for word in words)


def common_steps(left: RunHistory, right: RunHistory) -> list[int]:
    """Returns the steps at which both runs have fingerprints, in ascending order."""
    return sorted({*left.fingerprints} & {*right.fingerprints})


def steps_with_other_weights(
    left: RunHistory, right: RunHistory, steps: Iterable[int]
) -> list[int]:
    """Returns those of the common steps at which the weights differ."""
    return [
        step
        for step in steps
        if left.fingerprints[step].weights != right.fingerprints[step].weights
    ]


def read_history(run: Path, *, has_losses: bool = True) -> RunHistory:
    """Returns the history of a run, which is empty if the files are missing.

    The losses of long runs take seconds to read; without `has_losses`, they are left out.
    """
    return RunHistory(
        folder=run,
        # A process may be killed before it appends those of a checkpoint to the file.
        fingerprints={
            **{
                step: Fingerprints(record.weights, record.state)
                for step, record in checkpoints_of(run).records()
            },
            **_read_trail(RunDirectory(run).fingerprints),
        },
        losses={
            line["step"]: line["training_loss"]
            for line in (read_lines(RunDirectory(run).metrics) if has_losses else ())
            if line.get("split") == "train"
            and AVERAGED_STEPS not in line  # means over other steps
            and _is_loss(line.get("training_loss", ""))
        },
        attempts=tuple(RunDirectory(run).attempts("train")),
    )


def _read_trail(path: Path) -> dict[int, Fingerprints]:
    # The last line of a step counts: the run may have been resumed from an earlier step.
    return {
        line["step"]: Fingerprints(str(line.get("weights")), str(line.get("state")))
        for line in read_lines(path)
    }


def _is_loss(value: object) -> bool:
    # JSON has no NaN: the loss is null then.
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))
