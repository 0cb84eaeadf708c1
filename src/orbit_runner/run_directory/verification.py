"""Checks whether the checkpoints of a run are unchanged."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.latest_checkpoint import BEST, CheckpointLocation, checkpoints_of
from orbit_runner.errors import RunnerError, first_line, format_count
from orbit_runner.run_directory.config import read_settings
from orbit_runner.utils.log import phase


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result of checking one checkpoint."""

    name: str  # Relative to the run directory: `checkpoints/ckpt-100`.
    step: int
    weights: str = ""  # SHA-256 of the weights on the disk; "" if they were not read.
    state: str = ""  # The same for everything in the checkpoint.
    damage: str = ""  # What is wrong with it, or "".


def verify(run: Path) -> list[Verdict]:
    """Compares the checkpoints of a run with their records: the files, then the tensors in them.

    Imports tensorflow only if the files of a checkpoint are intact. Those of the best checkpoints
    come last. Raises `RunnerError` if there are no checkpoints.
    """
    places = [*_find_checkpoints(run)]
    if not places:
        problem = "contains no checkpoint" if run.exists() else "does not exist"
        raise RunnerError(
            f"{run} {problem}\nspecify a run directory", path="RUN", code="no-checkpoint"
        )
    count = format_count(len(places), "checkpoint")
    phase(f"reading the files of {count}")
    checked = [(place, verdict) for place in places if (verdict := _check_files(place))]
    if all(verdict.damage for _, verdict in checked):
        return [verdict for _, verdict in checked]
    phase("importing tensorflow")
    import orbit_runner.checkpoint.fingerprint  # noqa: F401

    phase(f"reading the tensors of {count}")
    return [now for place, verdict in checked if (now := _check_tensors(place, verdict))]


def _find_checkpoints(run: Path) -> Iterator[CheckpointLocation]:
    """Yields the checkpoints, but for those that were only partly moved into place or removed."""
    best = {path.parent for path in run.glob(f"*/{BEST}-*.*")}
    subdirectory = read_settings(run).get("trainer.best_checkpoint_export_subdir")
    if subdirectory:  # It may be below another directory.
        best.add(run / os.path.normpath(str(subdirectory)))
    folders = [checkpoints_of(run), *(CheckpointFolder(path, name=BEST) for path in sorted(best))]
    for folder in folders:
        for step in folder.steps():
            if not folder.is_unfinished(step):
                yield CheckpointLocation(folder, step, f"{os.path.relpath(folder.path, run)}/")


def _check_files(place: CheckpointLocation) -> Verdict | None:
    """Returns the verdict on the files of a checkpoint; None if the run has just removed it."""
    problem = place.folder.problem(place.step)
    if problem is not None and problem.is_gone:
        return None
    damage = "" if problem is None else problem.reason
    return Verdict(name=place.name, step=place.step, damage=damage)


def _check_tensors(place: CheckpointLocation, verdict: Verdict) -> Verdict | None:
    """Returns the verdict on the tensors of a checkpoint, too; None if it was just removed."""
    if verdict.damage:
        return verdict
    from orbit_runner.checkpoint.fingerprint import READ_ERRORS, CheckpointContent

    try:
        content = CheckpointContent(place.prefix).summary()
        record = place.folder.record(place.step)
    except READ_ERRORS as error:
        if place.step not in place.folder.steps():
            return None
        return dataclasses.replace(verdict, damage=f"cannot be read: {first_line(error)}")
    pairs = [("weights", content.weights, record.weights), ("state", content.state, record.state)]
    words = [
        f"{what} {on_disk[:12]} on disk, {str(recorded)[:12] or 'none'} in its record"
        for what, on_disk, recorded in pairs
        if on_disk != recorded
    ]
    return dataclasses.replace(
        verdict, weights=content.weights, state=content.state, damage="; ".join(words)
    )
