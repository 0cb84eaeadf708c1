"""Which checkpoint of a run is the latest; imports no tensorflow.

This runner's are in `checkpoints/`, Model Garden's in the run directory itself. Either may have
trained last: the later step counts. The files of the latest need not be whole: a resume and the
commands go through `places_of` from its end until they find one that is.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.discovery import Place, damage_now
from orbit_runner.checkpoint.metadata import CheckpointRecord
from orbit_runner.run_directory.paths import RunDirectory


def checkpoints_of(run: Path) -> CheckpointFolder:
    """Returns the directory of a run's checkpoints.

    Args:
        run: The run directory.
    """
    return CheckpointFolder(RunDirectory(run).checkpoints)


def places_of(own: CheckpointFolder, *, unfinished: bool = False) -> list[Place]:
    """Finds the checkpoints of a run.

    Args:
        own: The folder of this runner's.
        unfinished: Whether those of this runner count of which there is no index.

    Returns:
        Them, the one of the last step at the end, of equal steps this runner's.
    """
    theirs = CheckpointFolder(own.path.parent)
    steps = own.steps() if unfinished else own.committed()
    places = [Place(theirs, step, f"ckpt-{step}") for step in theirs.committed()]
    places += [Place(own, step, f"{own.path.name}/ckpt-{step}") for step in steps]
    return sorted(places, key=lambda place: place.step)


def pointed_step(own: CheckpointFolder) -> int | None:
    """Returns the step of the checkpoint that the run directory names as its newest.

    The file `checkpoint` there is written after each save, for Model Garden's runner.

    Args:
        own: The folder of this runner's.

    Returns:
        The step; None where no checkpoint of this runner was ever saved.
    """
    try:
        text = (own.path.parent / "checkpoint").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(rf'model_checkpoint_path: "{re.escape(own.path.name)}/ckpt-(\d+)"', text)
    return int(found[1]) if found else None


def path_of(place: Place) -> Path:
    """Returns the path of a checkpoint as TensorFlow takes it, without suffix."""
    return place.folder.prefix(place.step)


def latest_whole(folder: CheckpointFolder, at_most: int | None = None) -> CheckpointRecord | None:
    """Finds the latest checkpoint of this runner that is whole and has a record.

    Args:
        folder: Where to look; nothing is changed there.
        at_most: The last step that counts.

    Returns:
        Its record; None where there is none.
    """
    steps = [step for step in folder.steps() if at_most is None or step <= at_most]
    for step in reversed(steps):
        with contextlib.suppress(OSError, ValueError):  # A run in training may remove it.
            record = folder.record(step) if damage_now(folder, step) == "" else None
            if record is not None:
                return record
    return None
