"""Finds checkpoints and checks whether their files are intact. Changes nothing on the disk."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterator
from pathlib import Path

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.run_directory.paths import CHECKPOINTS, RunDirectory

BEST = "best"
_FILE = re.compile(r"(.+)-(\d+)\.(?:index|json|data-\d+-of-\d+)")
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
            f"RUN: {target} {there}\n"
            "allowed: a run directory, a directory of checkpoints, or one checkpoint, such as "
            "runs/a/checkpoints/ckpt-100"
        )
    return places


def _find_in_folder(path: Path, label: str) -> Iterator[CheckpointLocation]:
    matches = (_FILE.fullmatch(file.name) for file in path.glob("*-*.*"))
    for name in sorted({match[1] for match in matches if match}):
        folder = CheckpointFolder(path, name=name)
        yield from (
            CheckpointLocation(folder, step, f"{label}{name}-{step}") for step in folder.steps()
        )


def _find_one(prefix: Path) -> Iterator[CheckpointLocation]:
    match = _FILE.fullmatch(prefix.name) or _PREFIX.fullmatch(prefix.name)
    if match is None:
        return
    folder, step = CheckpointFolder(prefix.parent, name=match[1]), int(match[2])
    if folder.files(step):
        yield CheckpointLocation(folder, step, f"{match[1]}-{step}")


def current_damage(folder: CheckpointFolder, step: int) -> str | None:
    """Returns what is wrong with a checkpoint: "" if it is intact, None if it no longer exists.

    The run may be training in the meantime.
    """
    found = _find_damage(folder, step)
    if found:
        # The run may be moving it into place or removing it.
        time.sleep(_PAUSE_SECONDS)
        return _find_damage(folder, step) if step in folder.steps() else None
    return found


def _find_damage(folder: CheckpointFolder, step: int) -> str:
    try:
        return folder.damage(step)
    except (OSError, ValueError, TypeError) as error:
        return f"cannot be read: {first_line(error)}"
