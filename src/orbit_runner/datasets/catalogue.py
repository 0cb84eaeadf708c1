"""The public datasets by name."""

from __future__ import annotations

from orbit_runner.datasets.catalogue_images import IMAGES
from orbit_runner.datasets.catalogue_ratings import RATINGS
from orbit_runner.datasets.catalogue_text import TEXTS
from orbit_runner.datasets.public_dataset import PublicDataset
from orbit_runner.errors import RunnerError, unknown_name_message

SETS: dict[str, PublicDataset] = {found.name: found for found in (*IMAGES, *TEXTS, *RATINGS)}


def find_dataset(name: str) -> PublicDataset:
    """Returns a dataset of the catalog; raises an error if the name is unknown."""
    if name not in SETS:
        raise RunnerError(
            f"{unknown_name_message('dataset', name, [*SETS])}\nsee `runner data list`"
        )
    return SETS[name]
