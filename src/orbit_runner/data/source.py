"""A data set as arrays in memory; numpy only, so that a bad file is reported at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from orbit_runner.errors import DataError


@dataclasses.dataclass(frozen=True, eq=False)
class ArraySource:
    """A data set whose examples can be read in any order.

    Attributes:
        name: What messages call it.
        arrays: Numpy arrays by name, nested at will, each with the examples along its first axis.
            Sets of images hold `image` (uint8 [n, height, width, channels]) and `label`
            (int32 [n]).
        num_classes: Number of labels, where there are any.
        mean: Mean of each channel in the unit of the pixels, None where unknown.
        std: Standard deviation of each channel in the unit of the pixels, None where unknown.
        labels: What the classes are called, where that is known.
        files: The files that the arrays were read from, where there are any.
    """

    name: str
    arrays: dict[str, Any]
    num_classes: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    labels: tuple[str, ...] | None = None
    files: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        sizes = {path: len(array) for path, array in leaves(self.arrays)}
        if not sizes or min(sizes.values()) < 1 or len(set(sizes.values())) > 1:
            raise DataError(
                f"{self.name}: got examples {sizes}, expected arrays of one size of at least 1"
            )

    @property
    def size(self) -> int:
        """The number of examples."""
        return len(next(leaves(self.arrays))[1])


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Walks through nested mappings.

    Args:
        tree: The mapping.
        prefix: Put in front of each path.

    Yields:
        The dotted path of each value that is no mapping, and the value.
    """
    for name, value in tree.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


class Repeated:
    """The rows of an array over and over, in the memory of one turn; passes for a numpy array."""

    def __init__(self, rows: np.ndarray, size: int) -> None:
        """Takes the rows.

        Args:
            rows: [k, ...].
            size: How many rows there seem to be, n.
        """
        self.rows, self.dtype = rows, rows.dtype
        self.shape, self.ndim = (size, *rows.shape[1:]), rows.ndim

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: slice) -> np.ndarray:
        return self.rows[index]
