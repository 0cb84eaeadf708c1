"""The public datasets by name."""

from __future__ import annotations

from orbit_runner.datasets.catalogue_images import IMAGES
from orbit_runner.datasets.catalogue_ratings import RATINGS
from orbit_runner.datasets.catalogue_text import TEXTS
from orbit_runner.datasets.published import PublicSet
from orbit_runner.errors import RunnerError, unknown

SETS: dict[str, PublicSet] = {found.name: found for found in (*IMAGES, *TEXTS, *RATINGS)}


def find(name: str) -> PublicSet:
    """Returns a dataset of the catalog; raises an error if the name is unknown."""
    if name not in SETS:
        raise RunnerError(f"{unknown('dataset', name, [*SETS])}\nsee `runner data list`")
    return SETS[name]
