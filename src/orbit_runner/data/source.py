"""A dataset as in-memory arrays; does not import TensorFlow, to report errors early."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from orbit_runner.errors import DataError


@dataclasses.dataclass(frozen=True, eq=False)
class ArraySource:
    """A dataset whose examples can be read in any order.

    Attributes:
        name: Name used in messages.
        arrays: NumPy arrays by name, in mappings of any depth. The first axis of each array is the
            examples. Image datasets have `image` (uint8 [n, height, width, channels]) and `label`
            (int32 [n]).
        num_classes: Number of classes. None if there are no labels.
        mean: Mean of each channel, in the unit of the pixels. None if unknown.
        std: Standard deviation of each channel, in the unit of the pixels. None if unknown.
        labels: Class names. None if unknown.
        files: The files that the arrays were read from, if any.
        origins: The source of a mixture that each example comes from, integers [n]. None if there
            is only one.
        parts: The name and the number of examples of each file or array that the user named, in
            order; empty if they are not known.
        rows: The place of each example in these parts, counted through all of them, ascending:
            int64 [n]. None if each place is an example.
    """

    name: str
    arrays: dict[str, Any]
    num_classes: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    labels: tuple[str, ...] | None = None
    files: tuple[Path, ...] = ()
    origins: np.ndarray | None = None
    parts: tuple[tuple[str, int], ...] = ()
    rows: np.ndarray | None = None

    def __post_init__(self) -> None:
        sizes = {path: len(array) for path, array in leaves(self.arrays)}
        if not sizes or min(sizes.values()) < 1 or len(set(sizes.values())) > 1:
            raise DataError(
                f"{self.name}: got sizes {sizes}, expected arrays of the same size, at least 1"
            )

    @property
    def size(self) -> int:
        """The number of examples."""
        return len(next(leaves(self.arrays))[1])

    def array_location(self, number: int) -> str:
        """Returns the file or array of an example, and its index there, as `a.npz, index 7`.

        "" if they are not known.
        """
        row = number if self.rows is None else int(self.rows[number])
        for name, count in self.parts:
            if row < count:
                return f"{name}, index {row}"
            row -= count
        return ""


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the dotted path, after `prefix`, and the value of each leaf of nested mappings."""
    for name, value in tree.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


class RepeatedArray:
    """Mimics a NumPy array [size, ...] that repeats `rows` [k, ...], which are stored once.

    A slice of it is a slice of the stored rows.
    """

    def __init__(self, rows: np.ndarray, size: int) -> None:
        self.rows, self.dtype = rows, rows.dtype
        self.shape, self.ndim = (size, *rows.shape[1:]), rows.ndim

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: slice) -> np.ndarray:
        return self.rows[index]


def stored_rows(array: np.ndarray | RepeatedArray) -> np.ndarray:
    """Returns the rows of an array [n, ...] that are stored, [k, ...].

    k is less than n only for a `RepeatedArray` and for an array made by `np.broadcast_to`.
    """
    if isinstance(array, RepeatedArray):
        return array.rows
    return array[:1] if len(array) > 1 and array.strides[0] == 0 else array
