"""Objects that return one example for each index, such as Grain's data sources; no TensorFlow.

They are read when a batch needs them, so they may be larger than memory.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from orbit_runner.data.arrays import Gathered, leaves, tree_of
from orbit_runner.data.fingerprint import DataFile, describe_arrays
from orbit_runner.data.source import ArraySource, places_of_arrays
from orbit_runner.errors import DataError, first_line

if TYPE_CHECKING:
    from _typeshed import SupportsLenAndGetItem

# Examples that are read to notice that an object has changed, evenly spread.
_DESCRIBED = 64


class ExampleReader:
    """Reads examples of an object, as trees of arrays of one example.

    Attributes:
        batch_size: The number of examples in an item; 0 if each item is an example.

    Args:
        name: The name of the object for messages.
        items: The object: it has a length, and returns an item for each index from 0.
        parse: Returns the tree of what the object returns for an index.
        has_batches: Whether each item is a batch, whose rows are the examples, as in Keras'
            `PyDataset`. All batches but the last must have the same size.
    """

    def __init__(
        self,
        name: str,
        items: SupportsLenAndGetItem[Any],
        parse: Callable[[Any], dict[str, Any]],
        *,
        has_batches: bool = False,
    ) -> None:
        self.name = name
        self._items = items
        self._parse = parse
        # The object need not be prepared for several threads.
        self._lock = threading.Lock()
        self.size = len(items)
        if not self.size:
            raise DataError(f"{name}: has no examples", field="function", code="empty-data")
        self.batch_size = 0
        first = self._item(0)
        if has_batches:
            self.batch_size = _rows_of(first)
            last = _rows_of(self._item(self.size - 1))
            self.size = self.batch_size * (self.size - 1) + last
        self.specs = {
            path: (array.shape[has_batches:], array.dtype) for path, array in leaves(first)
        }

    def read(self, numbers: Sequence[int]) -> dict[str, list[np.ndarray]]:
        """Returns the arrays of examples by dotted path.

        Raises `DataError` if one cannot be read, or is unlike the first.
        """
        rows: dict[str, list[np.ndarray]] = {path: [] for path in self.specs}
        batches: dict[int, dict[str, Any]] = {}
        for number in numbers:
            if self.batch_size:
                index, row = divmod(number, self.batch_size)
                if index not in batches:
                    batches[index] = dict(leaves(self._item(index)))
                example = {path: array[row] for path, array in batches[index].items()}
            else:
                example = dict(leaves(self._item(number)))
            self._check(number, example)
            for path, values in rows.items():
                values.append(example[path])
        return rows

    def _item(self, index: int) -> dict[str, Any]:
        try:
            with self._lock:
                item = self._items[index]
        except DataError:
            raise
        except Exception as error:  # The code of the object may raise any error.
            reason = f"{type(error).__name__}: {first_line(error)}"
            raise DataError(
                f"{self.name}: item {index}: {reason}", field="function", code="bad-record"
            ) from error
        return self._parse(item)

    def _check(self, number: int, example: Mapping[str, np.ndarray]) -> None:
        for path in dict.fromkeys([*self.specs, *example]):
            expected = self.specs.get(path)
            array = example.get(path)
            got = None if array is None else (np.shape(array), np.asarray(array).dtype)
            if got != expected:
                raise DataError(
                    f"{self.name}: example {number}: got {path} {_format(got)}, expected "
                    f"{_format(expected)} as in example 0",
                    field="function",
                    code="bad-record",
                )


class ReadValues:
    """The values of all examples of an object, which are read when they are needed.

    `path` is the dotted path of one array of an example.
    """

    nbytes = 2**62  # They are never all in memory.

    def __init__(self, reader: ExampleReader, path: str) -> None:
        shape, self.dtype = reader.specs[path]
        self.shape = (reader.size, *shape)
        self.reader = reader
        self._path = path

    def __getitem__(self, rows: Any) -> np.ndarray:
        values = self.reader.read(np.atleast_1d(rows).tolist())[self._path]
        return np.stack(values) if np.ndim(rows) else values[0]


def indexed_source(reader: ExampleReader) -> ArraySource:
    """Returns the examples of an object as a source, whose arrays gather `ReadValues`."""
    rows = np.arange(reader.size)
    tree = tree_of({path: Gathered(ReadValues(reader, path), rows) for path in reader.specs})
    places = places_of_arrays("OBJECT", [(reader.name, reader.size)])
    return ArraySource(reader.name, tree, places=places)


def indexed_arrays(source: ArraySource) -> list[Gathered]:
    """Returns the arrays of a source that are read by index; empty if they are in memory."""
    arrays = (array for _, array in leaves(source.arrays) if isinstance(array, Gathered))
    return [array for array in arrays if isinstance(array.values, ReadValues)]


def describe_examples(source: ArraySource) -> list[DataFile]:
    """Returns an entry per array with a digest of its contents.

    Of an object that is read by index, an entry with its size and a digest of some examples.
    """
    arrays = indexed_arrays(source)
    if not arrays:
        return describe_arrays(source.arrays)
    rows, reader = np.asarray(arrays[0].codes), arrays[0].values.reader
    chosen = {number * len(rows) // _DESCRIBED for number in range(_DESCRIBED)}
    digest = hashlib.sha256(f"{len(rows)}{reader.specs}".encode())
    examples = reader.read(rows[sorted(chosen)].tolist())
    for path in sorted(examples):
        for value in examples[path]:
            has_texts = value.dtype.kind in "SUO"
            digest.update(repr(value.tolist()).encode() if has_texts else value.tobytes())
    return [DataFile(source.name, len(rows), digest=f"examples:{digest.hexdigest()}")]


def _rows_of(batch: Mapping[str, Any]) -> int:
    return len(next(iter(dict(leaves(batch)).values())))


def _format(spec: tuple[tuple[int, ...], np.dtype] | None) -> str:
    return "none" if spec is None else f"{spec[1]} {list(spec[0])}"
