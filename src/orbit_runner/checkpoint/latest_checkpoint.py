"""Finds the checkpoints of a run, and the latest of them. Imports no tensorflow.

This runner's checkpoints are in `checkpoints/`, Model Garden's in the run directory itself. Either
runner may have trained last, so the later step is the latest. Its files may be damaged: a resume
and the commands try the checkpoints that `list_checkpoints` returns, from the last one, until they
find an intact one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections.abc import Iterator
from pathlib import Path

from orbit_runner.checkpoint.directory import CHECKPOINT_FILE, CheckpointFolder
from orbit_runner.checkpoint.record import CheckpointRecord
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.paths import CHECKPOINTS, RunDirectory
from orbit_runner.utils.files import read_file

BEST = "best"
_PREFIX = re.compile(r"(.+)-(\d+)")
_PAUSE_SECONDS = 0.5


@dataclasses.dataclass(frozen=True)
class CheckpointLocation:
    """The location of a checkpoint."""

    folder: CheckpointFolder
    step: int
    name: str  # Relative to the path that was searched: `checkpoints/ckpt-100`.


def find_checkpoints(target: Path, best: str) -> list[CheckpointLocation]:
    """Returns the checkpoints at a path, those of the run itself first.

    `target` is a run directory, a directory of checkpoints, or the path of one checkpoint. `best`
    is the subdirectory of the run's best checkpoint. Raises `RunnerError` if there are no
    checkpoints.
    """
    if RunDirectory(target).checkpoints.is_dir():
        subdirs = dict.fromkeys([CHECKPOINTS, best, BEST])
        places = [place for name in subdirs for place in _find_in_folder(target / name, f"{name}/")]
    elif target.is_dir():
        places = [*_find_in_folder(target, "")]
    else:
        places = [*_find_one(target)]
    if not places:
        there = "contains no checkpoint" if target.exists() else "does not exist"
        raise RunnerError(
            f"{target} {there}\n"
            "allowed: a run directory, a directory of checkpoints, or one checkpoint, such as "
            "runs/a/checkpoints/ckpt-100",
            path="RUN",
            code="no-checkpoint",
        )
    return places


def _find_in_folder(path: Path, label: str) -> Iterator[CheckpointLocation]:
    matches = (CHECKPOINT_FILE.fullmatch(file.name) for file in path.glob("*-*.*"))
    for name in sorted({match[1] for match in matches if match}):
        directory = CheckpointFolder(path, name=name)
        yield from (
            CheckpointLocation(directory, step, f"{label}{name}-{step}")
            for step in directory.steps()
        )


def _find_one(prefix: Path) -> Iterator[CheckpointLocation]:
    match = CHECKPOINT_FILE.fullmatch(prefix.name) or _PREFIX.fullmatch(prefix.name)
    if match is None:
        return
    directory = CheckpointFolder(prefix.parent, name=match[1])
    step = int(match[2])
    if directory.files(step):
        yield CheckpointLocation(directory, step, f"{match[1]}-{step}")


def current_damage(directory: CheckpointFolder, step: int) -> str | None:
    """Returns what is wrong with a checkpoint: "" if it is intact, None if it no longer exists.

    The run may be training in the meantime.
    """
    damage = directory.damage(step)
    if damage:
        # The run may be moving it into place or removing it.
        time.sleep(_PAUSE_SECONDS)
        return directory.damage(step) if step in directory.steps() else None
    return damage


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
    match = re.search(rf'model_checkpoint_path: "{re.escape(own.path.name)}/ckpt-(\d+)"', text)
    return int(match[1]) if match else None


def path_of(place: CheckpointLocation) -> Path:
    """Returns the path of a checkpoint without suffix, as TensorFlow expects it."""
    return place.folder.prefix(place.step)


def latest_intact_record(
    directory: CheckpointFolder, at_most: int | None = None
) -> CheckpointRecord | None:
    """Returns the record of the latest intact checkpoint of this runner, or None.

    Ignores checkpoints without a record and steps after `at_most`. Changes nothing on the disk.
    """
    steps = [step for step in directory.steps() if at_most is None or step <= at_most]
    for step in reversed(steps):
        with contextlib.suppress(OSError, ValueError):  # A run in training may remove it.
            record = directory.record(step) if current_damage(directory, step) == "" else None
            if record is not None:
                return record
    return None
