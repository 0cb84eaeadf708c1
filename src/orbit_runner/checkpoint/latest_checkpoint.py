"""Selects the latest checkpoint of a run, or another one. Imports no tensorflow.

The files of the latest may be damaged: a resume and the commands try the checkpoints from the last
one until they find an intact one.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from orbit_runner.checkpoint.directory import CheckpointFolder, steps_by_rank
from orbit_runner.checkpoint.record import CheckpointRecord
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.paths import CHECKPOINTS, RunDirectory

BEST = "best"
NEWEST = "newest"
AVERAGE = "average"
PLAIN = "plain"


@dataclasses.dataclass(frozen=True)
class CheckpointLocation:
    """The location of a checkpoint."""

    folder: CheckpointFolder
    step: int
    above: str  # What its name begins with, such as `checkpoints/`.

    @property
    def name(self) -> str:
        """Its path relative to the run directory: `checkpoints/ckpt-100`."""
        return f"{self.above}{self.prefix.name}"

    @property
    def prefix(self) -> Path:
        """The path without suffix, as TensorFlow expects it."""
        return self.folder.prefix(self.step)

    @property
    def is_best(self) -> bool:
        """Whether it is a best one, which has the averaged weights if the run keeps an average."""
        return self.prefix.name.startswith(f"{BEST}-")

    def record(self) -> CheckpointRecord:
        """Returns the record of the checkpoint.

        Raises `RunnerError` if the record cannot be read, or if the run has just removed it.
        """
        return self.folder.require_record(self.step)


def checkpoints_of(run: Path) -> CheckpointFolder:
    """Returns the directory of a run's checkpoints."""
    return CheckpointFolder(RunDirectory(run).checkpoints)


def foreign_checkpoints_reason(run: Path) -> str:
    """Returns why a run cannot use a directory that has only checkpoints of Model Garden, or ""."""
    # Its trainer saves in the run directory itself.
    steps = CheckpointFolder(run).committed_steps()
    if not steps or checkpoints_of(run).steps():
        return ""
    return (
        f"{run} has checkpoints of Model Garden's trainer, which cannot be resumed\n"
        "use another --model_dir; to begin with these weights, set "
        f"task.init_checkpoint={run}/ckpt-{steps[-1]}"
    )


def latest_intact_record(
    directory: CheckpointFolder, at_most: int | None = None
) -> CheckpointRecord | None:
    """Returns the record of the latest intact checkpoint up to a step, or None.

    Changes nothing on the disk.
    """
    steps = [step for step in directory.steps() if at_most is None or step <= at_most]
    for step in reversed(steps):
        with contextlib.suppress(OSError, ValueError):  # A run in training may remove it.
            if directory.problem(step) is None:
                return directory.record(step)
    return None


def choose_checkpoint(
    run: Path, requested: str | None, best: str, note: Callable[[str], None]
) -> CheckpointLocation:
    """Returns a checkpoint of a run after checking that its files are intact.

    `requested` is a step, `newest`, `best` or a name such as `best-8800`; None for the best
    checkpoint if the run keeps an intact one, and the newest intact one otherwise. The argument
    `best` is the subdirectory of the run's best checkpoint, or "" if the run keeps none. `note` is
    called with a warning for each damaged checkpoint that is ignored. Raises `RunnerError` if there
    is no such checkpoint, or if it is damaged.
    """
    checkpoints = checkpoints_of(run)
    name = best or BEST
    own = _locate(checkpoints, f"{CHECKPOINTS}/", checkpoints.committed_steps())
    directory = CheckpointFolder(run / name, name=BEST)
    ranked = _locate(directory, f"{name}/", steps_by_rank(directory))
    if requested is None and best:
        with contextlib.suppress(RunnerError):
            return _select_newest(ranked, directory.path, note)
    if requested in (None, NEWEST):
        return _select_newest(own, checkpoints.path, note)
    if requested == BEST:
        if not ranked:
            raise RunnerError(
                f"there is no best checkpoint in {run / name}\n"
                "a run keeps one only if trainer.best_checkpoint_export_subdir is set",
                path="--checkpoint",
                code="no-checkpoint",
            )
        return _select_newest(ranked, directory.path, note)
    by_name = {
        **{str(place.step): place for place in own},
        **{place.prefix.name: place for place in ranked},
    }
    if requested not in by_name:
        raise RunnerError(
            f"got {requested!r}, but {run} has no such checkpoint\n"
            f"allowed: {', '.join([NEWEST, *([BEST] if ranked else []), *by_name])}",
            path="--checkpoint",
            code="unknown-step",
        )
    place = by_name[requested]
    problem = place.folder.problem(place.step)
    if problem is not None:
        raise RunnerError(f"{place.name} {problem}", path="--checkpoint", code="damaged-checkpoint")
    return place


def _locate(folder: CheckpointFolder, above: str, steps: Sequence[int]) -> list[CheckpointLocation]:
    return [CheckpointLocation(folder, step, above) for step in steps]


def _select_newest(
    places: list[CheckpointLocation], where: Path, note: Callable[[str], None]
) -> CheckpointLocation:
    for place in reversed(places):
        problem = place.folder.problem(place.step)
        if problem is None:
            return place
        if not problem.is_gone:
            note(f"warning: {place.name} is damaged and ignored: {problem.reason}")
    if not places:
        raise RunnerError(
            f"no checkpoint found in {where}\n"
            "train first (`runner --experiment=… --model_dir=…`), or specify another run directory",
            path="RUN",
            code="no-checkpoint",
        )
    raise RunnerError(
        f"no intact checkpoint is left in {where}\n"
        f"run `runner verify {where.parent}` to see how they are damaged",
        path="RUN",
        code="damaged-checkpoint",
    )


def choose_weights(requested: str | None, *, averages: bool, choice: CheckpointLocation) -> str:
    """Returns which weights of a checkpoint to use: `average` or `plain`.

    If `requested` is None, these are the ones that evaluation uses. Raises `RunnerError` if the
    checkpoint does not hold the weights.
    """
    if requested == AVERAGE and not averages:
        raise RunnerError(
            "got 'average', but this run has no average (set by "
            "trainer.optimizer_config.ema)\n"
            "allowed: 'plain'",
            path="--weights",
            code="not-allowed",
        )
    if requested == PLAIN and averages and choice.is_best:
        raise RunnerError(
            f"got 'plain', but {choice.name} contains only the averaged weights, "
            "which had the best result\n"
            "pass `newest` or a step to --checkpoint to use the plain weights of that step",
            path="--weights",
            code="not-allowed",
        )
    return requested or (AVERAGE if averages else PLAIN)
