"""A dataset as in-memory arrays; does not import TensorFlow, to report errors early."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orbit_runner.data.arrays import RepeatedArray, leaves
from orbit_runner.data.dataset import (
    Dataset,
    Place,
    check_classes,
    check_equal,
    join_names,
    join_rows,
    origins_of,
)
from orbit_runner.data.example_ids import find_row, locate
from orbit_runner.errors import DataError


@dataclasses.dataclass(frozen=True, eq=False)
class ArraySource(Dataset):
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
        part_kind: What the user calls such a part, for messages.
        unit: What the user calls an example of a part: `index`, or `row` of a table.
        first: The number of the first example of a part.
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
    part_kind: str = "DATASET"
    unit: str = "index"
    first: int = 0

    def __post_init__(self) -> None:
        sizes = {path: len(array) for path, array in leaves(self.arrays)}
        if not sizes or min(sizes.values()) < 1 or len(set(sizes.values())) > 1:
            raise DataError(
                f"{self.name}: got sizes {sizes}, expected arrays of the same size, at least 1",
                code="bad-data",
            )

    @property
    def size(self) -> int:
        """The number of examples."""
        return len(next(leaves(self.arrays))[1])

    def array_location(self, number: int) -> str:
        """Returns the file or array of an example, and its index there, as `a.npz, index 7`.

        "" if they are not known.
        """
        place = locate(self.parts, number if self.rows is None else int(self.rows[number]))
        return f"{place[0]}, {self.unit} {place[1] + self.first}" if place else ""

    @property
    def id_forms(self) -> str:  # type: ignore[override]
        """The forms of IDs besides indices, for messages."""
        return f", or {self.part_kind}:{self.unit.upper()}" if self.parts else ""

    def place(self, number: int) -> Place:
        """Returns where an example is stored."""
        location = self.array_location(number)
        return Place({"place": location} if location else {})

    def find(self, text: str) -> Iterator[int]:
        """Yields the example that an array and an index name."""
        if self.parts:
            yield find_row(text, self.parts, self.rows, first=self.first, id_help=self.id_help)

    def join(self, datasets: Sequence[ArraySource]) -> ArraySource:
        """Returns the examples of several datasets, of which this one is the first.

        Raises `DataError` that names two datasets if their arrays or their classes differ.
        """
        for number, dataset in enumerate(datasets[1:], 1):
            check_equal(number, dataset.name, self.name, _array_specs(dataset), _array_specs(self))
            check_classes(number, dataset, self)

        def join_trees(trees: list[Any]) -> Any:
            if isinstance(trees[0], Mapping):
                return {name: join_trees([tree[name] for tree in trees]) for name in trees[0]}
            return np.concatenate([_expand_repeated(array) for array in trees])

        counts = [dataset.num_classes for dataset in datasets if dataset.num_classes is not None]
        parts = [dataset.parts for dataset in datasets]
        known = all(parts)
        return ArraySource(
            name=join_names(datasets),
            arrays=join_trees([dataset.arrays for dataset in datasets]),
            num_classes=max(counts) if counts else None,
            mean=self.mean,
            std=self.std,
            labels=self.labels,
            files=tuple(path for dataset in datasets for path in dataset.files),
            origins=origins_of(datasets),
            parts=tuple(part for dataset_parts in parts for part in dataset_parts) if known else (),
            rows=join_rows([dataset.rows for dataset in datasets], parts) if known else None,
            part_kind=self.part_kind,
            unit=self.unit,
            first=self.first,
        )


def _expand_repeated(array: np.ndarray | RepeatedArray) -> np.ndarray:
    if not isinstance(array, RepeatedArray):
        return array
    return np.resize(array.rows, array.shape)


def _array_specs(source: ArraySource) -> dict[str, str]:
    return {
        # Texts may have any length.
        path: f"{array.dtype if array.dtype.kind not in 'US' else 'texts'} {list(array.shape[1:])}"
        for path, array in leaves(source.arrays)
    }
