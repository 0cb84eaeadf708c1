"""NumPy arrays: nested by name, gathered from others, read from `.npz`; no TensorFlow."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
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


class Gathered:
    """Mimics a NumPy array [n, ...] whose rows are among `values` [k, ...], which are stored once.

    Row i is `values[codes[i]]`. A number selects a row; a slice, a mask or an array of numbers
    selects a `Gathered`. `values` may be any object that has a shape and a type, and is indexed
    like an array.
    """

    def __init__(self, values: Any, codes: np.ndarray) -> None:
        self.values = values
        self.codes = codes
        self.dtype: np.dtype = values.dtype
        self.shape = (len(codes), *values.shape[1:])
        self.ndim = len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        codes = self.codes[index]
        return Gathered(self.values, codes) if np.ndim(codes) else self.values[codes]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.expand(self.values), dtype)

    def expand(self, rows: Any) -> np.ndarray:
        """Returns the row of each row of this array, of rows [k, ...] that belong to its values."""
        expanded: np.ndarray = rows[self.codes]
        return expanded

    @property
    def nbytes(self) -> int:
        """The bytes that are stored; those of Python objects, such as texts, are not counted."""
        return int(self.values.nbytes) + int(self.codes.nbytes)


def is_text(array: np.ndarray | Gathered) -> bool:
    """Returns whether an array contains texts."""
    return array.dtype.kind in "SUO"


def stored_rows(array: np.ndarray | Gathered) -> np.ndarray:
    """Returns the rows of an array [n, ...] that are stored, [k, ...]."""
    rows: np.ndarray = array.values if isinstance(array, Gathered) else array
    return rows


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
