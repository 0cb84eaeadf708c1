"""Finds the latest checkpoint of a run. Imports no tensorflow.

This runner's checkpoints are in `checkpoints/`, Model Garden's in the run directory itself. Either
runner may have trained last, so the later step is the latest. Its files may be damaged: a resume
and the commands try the checkpoints that `list_checkpoints` returns, from the last one, until they
find an intact one.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.discovery import CheckpointLocation, current_damage
from orbit_runner.checkpoint.metadata import CheckpointRecord
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.utils.files import read_file


def checkpoints_of(run: Path) -> CheckpointFolder:
    """Returns the directory of a run's checkpoints."""
    return CheckpointFolder(RunDirectory(run).checkpoints)


def list_checkpoints(
    own: CheckpointFolder, *, unfinished: bool = False
) -> list[CheckpointLocation]:
    """Returns the checkpoints of a run, sorted by step.

    If both runners have a checkpoint of a step, this runner's comes last. With `unfinished`, this
    runner's checkpoints without an index are included.
    """
    theirs = CheckpointFolder(own.path.parent)
    steps = own.steps() if unfinished else own.committed_steps()
    places = [CheckpointLocation(theirs, step, f"ckpt-{step}") for step in theirs.committed_steps()]
    places += [CheckpointLocation(own, step, f"{own.path.name}/ckpt-{step}") for step in steps]
    return sorted(places, key=lambda place: place.step)


def newest_step_of_run(own: CheckpointFolder) -> int | None:
    """Returns the step of the checkpoint that the run directory names as its latest.

    The `checkpoint` file there is written after each save, for Model Garden's runner. None if the
    file does not exist or names no checkpoint of this runner.
    """
    try:
        text = read_file(own.path.parent / "checkpoint").decode(errors="replace")
    except OSError:
        return None
    found = re.search(rf'model_checkpoint_path: "{re.escape(own.path.name)}/ckpt-(\d+)"', text)
    return int(found[1]) if found else None


def path_of(place: CheckpointLocation) -> Path:
    """Returns the path of a checkpoint without suffix, as TensorFlow expects it."""
    return place.folder.prefix(place.step)


def latest_intact_record(
    folder: CheckpointFolder, at_most: int | None = None
) -> CheckpointRecord | None:
    """Returns the record of the latest intact checkpoint of this runner, or None.

    Ignores checkpoints without a record and steps after `at_most`. Changes nothing on the disk.
    """
    steps = [step for step in folder.steps() if at_most is None or step <= at_most]
    for step in reversed(steps):
        with contextlib.suppress(OSError, ValueError):  # A run in training may remove it.
            record = folder.record(step) if current_damage(folder, step) == "" else None
            if record is not None:
                return record
    return None
