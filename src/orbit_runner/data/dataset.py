"""What a dataset is, whatever its examples are; does not import TensorFlow.

Its examples are numbered from 0 in stored order. Arrays (`source.py`), the rows of a table
(`tables/columns.py`) and images (`images/dataset.py`) are datasets.
"""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from orbit_runner.config.schema.data import input_paths
from orbit_runner.data.order.epochs import EpochOrder, ShuffledOrder
from orbit_runner.data.places import Places, index_of, unknown_id_error
from orbit_runner.errors import DataError

_Dataset = TypeVar("_Dataset", bound="Dataset")
# Contents are compared up to this number of bytes, which takes about a second.
MOST_COMPARED_BYTES = 2**28


def arguments_of(load: Callable[..., Any], section: Any, **others: object) -> dict[str, object]:
    """Returns the arguments of the function that reads a source: its settings in a section.

    An argument has the name of its setting, or of a value in `others`, which has priority.
    """
    values = {"input_path": input_paths(section), **others}
    names = inspect.signature(load).parameters
    return {name: values[name] if name in values else getattr(section, name) for name in names}


class Dataset(abc.ABC):
    """Examples that are stored somewhere.

    Attributes:
        name: Name for messages.
        places: The rows of files or arrays that the examples are; None if they have no names.
        origins: The dataset of a mixture that each example comes from, integers [n]; None if there
            is only one.
    """

    name: str
    places: Places | None = None
    origins: np.ndarray | None = None

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """The number of examples."""

    @abc.abstractmethod
    def select(self: _Dataset, rows: np.ndarray) -> _Dataset:
        """Returns some examples, as if there were no others; `rows` are ascending, int64 [k]."""

    @abc.abstractmethod
    def join(self: _Dataset, datasets: Sequence[_Dataset]) -> _Dataset:
        """Returns the examples of several datasets of this class, of which this one is the first.

        Raises `DataError` if their examples are not alike.
        """

    def location(self, number: int) -> str:
        """Returns the file and the number of an example, such as `a.csv, row 7`; "" if unknown."""
        return "" if self.places is None else self.places.text(number)

    def place(self, number: int) -> dict[str, object]:
        """Returns where an example is stored: file, record, index and the like by name."""
        location = self.location(number)
        return {"place": location} if location else {}

    def describe(self, number: int) -> dict[str, object]:
        """Returns where an example is stored, and what is known about it."""
        return self.place(number)

    def find(self, text: str) -> Iterator[int]:
        """Yields the examples that an ID names, unless it is an index."""
        if self.places is not None:
            yield self.places.find(text, self.id_help)

    def content_keys(self, labels: Sequence[str], other: Dataset) -> np.ndarray | None:
        """Returns a key of the contents of each example, uint64 [n]; None if that takes long.

        Equal examples have equal keys. `labels` names the arrays that are not part of the contents.
        `other` is the dataset to compare with, whose contents are read as well.
        """
        return None

    def file_bytes(self) -> int | None:
        """Returns the size of the files with the examples; None if examples are in memory."""
        return None

    def place_keys(self) -> np.ndarray | None:
        """Returns a key of the place of each example, uint64 [n]; None if it has none."""
        return None

    def order(self, seed: int, shuffle_buffer_size: int) -> EpochOrder:
        """Returns the order of the examples in training, without a mixture."""
        return ShuffledOrder(self.size, seed, shuffle_buffer_size > 1)

    @property
    def id_forms(self) -> str:
        """The forms of IDs besides indices, for messages."""
        return "" if self.places is None else f", or {self.places.id_form}"

    @property
    def id_help(self) -> str:
        """The forms of IDs, for messages."""
        return f"an index as `runner batch` prints it{self.id_forms}"

    def number_of(self, text: str) -> int:
        """Returns the number of the example that an ID names.

        Raises `UnknownExample` if there is none, or more than one.
        """
        index = index_of(text, self.size)
        matches = [index] if index is not None else [*self.find(text)]
        if len(matches) == 1:
            return matches[0]
        reason = f"is the end of {len(matches)} paths; add directories" if matches else ""
        raise unknown_id_error(text, self.id_help, reason)


def joined_fields(datasets: Sequence[Dataset]) -> dict[str, Any]:
    """Returns the name, the places and the origins of joined datasets."""
    places = [dataset.places for dataset in datasets if dataset.places is not None]
    return {
        "name": " and ".join(dict.fromkeys(dataset.name for dataset in datasets)),
        "places": places[0].join(places) if len(places) == len(datasets) else None,
        "origins": np.repeat(np.arange(len(datasets)), [dataset.size for dataset in datasets]),
    }


def describe_label(
    label: Any, key: str = "label", names: Sequence[str] | None = None
) -> dict[str, object]:
    """Returns a label that is a number or a text by `key`, and by `class` the name of its class."""
    if label is None or np.size(label) != 1:
        return {}
    value = np.reshape(label, ()).item()
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, float):
        value = float(f"{value:.6g}")
    if names and isinstance(value, int) and 0 <= value < len(names):
        return {key: value, "class": str(names[value])}
    return {key: value}


def check_equal(
    number: int, name: str, first: str, got: Mapping[str, str], expected: Mapping[str, str]
) -> None:
    """Raises `DataError` if a dataset of a mixture differs from the first in a value by name."""
    for path in dict.fromkeys([*got, *expected]):
        if got.get(path) != expected.get(path):
            raise DataError(
                f"{name}: got {path} {got.get(path, 'none')}, expected "
                f"{expected.get(path, 'none')} as in mixture[0], {first}",
                field=f"mixture[{number}]",
                code="data-mismatch",
            )


def class_difference(labels: Sequence[str], expected: Sequence[str], other: str) -> str:
    """Returns how classes differ from those of `other`, with the names that only one side has."""
    sides = {
        "only here": sorted(set(labels) - set(expected)),
        f"only in {other}": sorted(set(expected) - set(labels)),
    }
    if not any(sides.values()):
        order = f"{_some_names(labels)}, expected {_some_names(expected)}"
        return f"has the classes of {other} in another order: {order}"
    lists = [f"{side} {_some_names(names)}" for side, names in sides.items() if names]
    return f"has other classes than {other}: {'; '.join(lists)}"


def _some_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def check_classes(number: int, dataset: Any, first: Any) -> None:
    """Raises `DataError` if a dataset of a mixture has other classes than the first."""
    if dataset.labels == first.labels:
        return
    difference = class_difference(
        dataset.labels or (), first.labels or (), f"mixture[0], {first.name}"
    )
    raise DataError(
        f"{dataset.name}: {difference}",
        field=f"mixture[{number}]",
        code="data-mismatch",
    )
