"""NumPy arrays: nested by name, repeated, and read from `.npz`. Does not import TensorFlow."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orbit_runner.errors import DataError, first_line


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the dotted path, after `prefix`, and the value of each leaf of nested mappings."""
    for name, value in tree.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


def tree_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested mappings of values by dotted path, from which `leaves` yields them."""
    tree: dict[str, Any] = {}
    for path, value in values.items():
        *parents, name = path.split(".")
        branch = tree
        for parent in parents:
            branch = branch.setdefault(parent, {})
        branch[name] = value
    return tree


class RepeatedArray:
    """Mimics a NumPy array [size, ...] that repeats `rows` [k, ...], which are stored once.

    A slice of it is a slice of the stored rows.
    """

    def __init__(self, rows: np.ndarray, size: int) -> None:
        self.rows = rows
        self.dtype = rows.dtype
        self.shape = (size, *rows.shape[1:])
        self.ndim = rows.ndim

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: slice) -> np.ndarray:
        return self.rows[index]


class TextArray:
    """Mimics a NumPy array [n] of texts, in which each different text is stored once.

    A slice, a mask or an array of indices selects a `TextArray`, a number a text.
    """

    dtype = np.dtype(object)
    ndim = 1

    def __init__(self, texts: Sequence[str], codes: np.ndarray) -> None:
        self.texts = texts
        self.codes = codes
        self.shape = codes.shape

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: Any) -> Any:
        chosen = self.codes[index]
        return TextArray(self.texts, chosen) if np.ndim(chosen) else self.texts[int(chosen)]

    @property
    def nbytes(self) -> int:
        """The bytes of the numbers of the texts; the texts themselves are not counted."""
        return int(self.codes.nbytes)

    def tolist(self) -> list[str]:
        """Returns the texts of all rows."""
        return [self.texts[code] for code in self.codes.tolist()]


def is_text(array: np.ndarray | RepeatedArray | TextArray) -> bool:
    """Returns whether an array contains texts."""
    return array.dtype.kind in "SUO"


def stored_rows(array: np.ndarray | RepeatedArray | TextArray) -> np.ndarray:
    """Returns the rows of an array [n, ...] that are stored, [k, ...].

    k is less than n only for a `RepeatedArray` and for an array made by `np.broadcast_to`. Of
    texts, the rows are their numbers.
    """
    if isinstance(array, RepeatedArray):
        return array.rows
    if isinstance(array, TextArray):
        return array.codes
    return array[:1] if len(array) > 1 and array.strides[0] == 0 else array


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Returns the arrays of a file by name.

    Raises `DataError` if the file is damaged, holds a single array, or holds Python objects, which
    would be unpickled.
    """
    try:
        archive = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("a single array, expected an archive of numpy.savez")
        with archive:
            return {name: archive[name] for name in archive.files}
    # NumPy and zipfile raise a dozen kinds of errors for damaged files.
    except Exception as error:
        raise DataError(
            f"{path}: cannot be read as .npz: {first_line(error)}",
            field="input_path",
            code="damaged-file",
        ) from None


def bytes_keys(rows: Iterable[bytes]) -> np.ndarray:
    """Returns a key of each row, which equal rows have in common: uint64 [n]."""
    blake = hashlib.blake2b
    digests = b"".join(blake(row, digest_size=8).digest() for row in rows)
    return np.frombuffer(digests, np.uint64)
