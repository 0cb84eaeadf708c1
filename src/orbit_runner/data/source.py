"""A dataset as in-memory arrays; does not import TensorFlow, to report errors early."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from orbit_runner.data.arrays import Gathered, bytes_keys, is_text, leaves, stored_rows
from orbit_runner.data.dataset import (
    MOST_COMPARED_BYTES,
    Dataset,
    check_classes,
    check_equal,
    joined_fields,
)
from orbit_runner.data.places import Places
from orbit_runner.errors import DataError

_Source = TypeVar("_Source", bound="ArraySource")
_MOST_ROWS = 10**6  # whose contents are compared


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
        places: The rows of files or arrays that the user named; None if they are not known.
    """

    name: str
    arrays: dict[str, Any]
    num_classes: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    labels: tuple[str, ...] | None = None
    files: tuple[Path, ...] = ()
    origins: np.ndarray | None = None
    places: Places | None = None

    def __post_init__(self) -> None:
        sizes = {path: len(array) for path, array in leaves(self.arrays)}
        if not sizes or min(sizes.values()) < 1 or len(set(sizes.values())) > 1:
            raise DataError(
                f"{self.name}: got sizes {sizes}, expected arrays of the same size, at least 1",
                code="bad-data",
            )

    @classmethod
    def from_source(cls: type[_Source], source: ArraySource) -> _Source:
        """Returns the arrays of a source as one of this class."""
        names = (field.name for field in dataclasses.fields(ArraySource))
        return cls(**{name: getattr(source, name) for name in names})

    @property
    def size(self) -> int:
        """The number of examples."""
        return len(next(leaves(self.arrays))[1])

    def content_keys(self, labels: Sequence[str], other: Dataset) -> np.ndarray | None:
        """Returns a key of the features of each example; None if there are too many."""
        features = {name: tree for name, tree in self.arrays.items() if name not in labels}
        arrays = dict(leaves(features))
        size = sum(array.nbytes for array in arrays.values())
        if self.size > _MOST_ROWS or size > MOST_COMPARED_BYTES or not arrays:
            return None
        keys = np.zeros(self.size, np.uint64)
        for path in sorted(arrays):
            own = _row_keys(arrays[path])
            keys = bytes_keys(pair.tobytes() for pair in np.stack([keys, own], axis=1))
        return keys

    def select(self: _Source, rows: np.ndarray) -> _Source:
        """Returns some of the examples."""

        def select_rows(tree: Any) -> Any:
            if isinstance(tree, Mapping):
                return {name: select_rows(value) for name, value in tree.items()}
            return tree[rows]

        return dataclasses.replace(
            self,
            arrays=select_rows(self.arrays),
            origins=None if self.origins is None else self.origins[rows],
            places=None if self.places is None else self.places.select(rows),
        )

    def join(self: _Source, datasets: Sequence[ArraySource]) -> _Source:
        """Returns the examples of several datasets, of which this one is the first.

        Raises `DataError` that names two datasets if their arrays or their classes differ.
        """
        for number, dataset in enumerate(datasets[1:], 1):
            check_equal(number, dataset.name, self.name, _array_specs(dataset), _array_specs(self))
            check_classes(number, dataset, self)

        def join_trees(trees: list[Any]) -> Any:
            if isinstance(trees[0], Mapping):
                return {name: join_trees([tree[name] for tree in trees]) for name in trees[0]}
            return np.concatenate([np.asarray(array) for array in trees])

        counts = [dataset.num_classes for dataset in datasets if dataset.num_classes is not None]
        return dataclasses.replace(
            self,
            **joined_fields(datasets),
            arrays=join_trees([dataset.arrays for dataset in datasets]),
            num_classes=max(counts) if counts else None,
            files=tuple(path for dataset in datasets for path in dataset.files),
        )


def places_of_arrays(kind: str, parts: Sequence[tuple[str, int]]) -> Places:
    """Returns the places of all examples of some arrays; `kind` is what the user calls them."""
    return Places(tuple(parts), kind=kind, unit="index", first=0)


def _row_keys(array: np.ndarray | Gathered) -> np.ndarray:
    """Returns a key of each row."""
    keys = bytes_keys(_row_bytes(stored_rows(array)))
    return array.expand(keys) if isinstance(array, Gathered) else keys


def _row_bytes(rows: np.ndarray) -> Iterable[bytes]:
    if is_text(rows):  # Their width in bytes depends on the longest string.
        return (repr(row).encode("utf-8", "surrogatepass") for row in rows.tolist())
    return (row.tobytes() for row in np.ascontiguousarray(rows))


def _array_specs(source: ArraySource) -> dict[str, str]:
    return {
        # Texts may have any length.
        path: f"{array.dtype if array.dtype.kind not in 'US' else 'texts'} {list(array.shape[1:])}"
        for path, array in leaves(source.arrays)
    }
