"""The checkpoints that a run can go on from; imports no tensorflow.

This runner's are in `checkpoints/`, Model Garden's in the folder of the run itself. Either may have
trained last: the later step counts.
"""

from __future__ import annotations

from pathlib import Path

from orbit_runner.training.checkpoints.folder import CheckpointFolder
from orbit_runner.training.checkpoints.places import Place

SUBFOLDER = "checkpoints"


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


def path_of(place: Place) -> Path:
    """Returns the path of a checkpoint as TensorFlow takes it, without suffix."""
    return place.folder.prefix(place.step)
