"""Tables of NumPy arrays: `.npz` files, and arrays that a Python function returns."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orbit_runner.data.npz_file import read_npz
from orbit_runner.data.tables.arrow_types import kind_of
from orbit_runner.data.tables.columns import CATEGORY, NUMBER
from orbit_runner.data.tables.reader import (
    Block,
    TableOptions,
    TableReader,
    check_equal_names,
    extra_columns,
    skipped_files,
    table_files,
)
from orbit_runner.errors import DataError, first_line

_KINDS = {"f": NUMBER, "i": NUMBER, "u": NUMBER, "b": CATEGORY, "U": CATEGORY, "S": CATEGORY}


def load_npz(*, data_dir: str, input_path: Sequence[str], options: TableOptions) -> TableReader:
    """Returns the reader of `.npz` files, whose arrays are the columns.

    Raises `DataError` if a file is missing or damaged, or has other arrays than the first.
    """
    files = table_files("npz", data_dir, input_path, "*.npz")
    tables = [(str(path), flatten_columns(str(path), read_npz(path))) for path in files]
    for path, (_, columns) in zip(files[1:], tables[1:], strict=True):
        check_equal_names(path, [*columns], files[0], [*tables[0][1]])
    skipped = skipped_files(data_dir, input_path, files)
    return array_reader("npz", tables, files, options, skipped)


def load_function(
    *, data_dir: str, input_path: Sequence[str], options: TableOptions
) -> TableReader:
    """Returns the reader of the arrays by name that `options.function` returns.

    Raises `DataError` if there is no such function, or it does not return arrays of equal length.
    """
    for field, value in (("data_dir", data_dir), ("input_path", list(input_path))):
        if value:
            raise DataError(
                f"arrays: got {field} {value!r}, expected none: the function finds its own files",
                field=field,
            )
    made = _import_function(options.function)()
    if not hasattr(made, "items"):
        raise DataError(
            f"arrays: {options.function} returned {type(made).__name__}, expected arrays by name",
            field="function",
        )
    columns = flatten_columns("arrays", dict(made.items()))
    return array_reader("arrays", [(options.function, columns)], options=options)


def array_reader(
    name: str,
    tables: Sequence[tuple[str, Mapping[str, np.ndarray]]],
    files: Sequence[Path] = (),
    options: TableOptions = TableOptions(),
    skipped: tuple[str, ...] = (),
) -> TableReader:
    """Returns the reader of arrays [n] by name, for each file or other origin."""
    kinds = {
        column: _kind_of_array(tables[0][0], column, array)
        for column, array in tables[0][1].items()
    }

    def blocks(names: Sequence[str]) -> Iterator[Block]:
        for where, columns in tables:
            yield Block({one: _to_arrow(where, one, columns[one]) for one in names}, where, 1)

    columns = [[*columns] for _, columns in tables]
    # A table may also be read from several files, whose columns are then put side by side.
    extra = extra_columns(files, columns) if len(files) == len(columns) else {}
    return TableReader(name, kinds, blocks, tuple(files), options, extra=extra, skipped=skipped)


def _kind_of_array(where: str, name: str, array: np.ndarray) -> str:
    if array.dtype.kind in "mMcV":  # Times, complex numbers, records.
        return str(array.dtype)
    if array.dtype.kind == "O":
        return kind_of(_to_arrow(where, name, array).type)
    return _KINDS.get(array.dtype.kind, CATEGORY)


def flatten_columns(where: str, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Returns arrays [n] by name. An array [n, k] called `x` gives `x_0` to `x_{k-1}`.

    Raises `DataError` if the arrays have different lengths or more than two axes.
    """
    found: dict[str, np.ndarray] = {}
    for name, value in arrays.items():
        array = np.asarray(value)
        if array.ndim not in (1, 2):
            raise DataError(
                f"{where}: array {name!r} has shape {list(array.shape)}, expected [rows] or "
                "[rows, columns]",
                field="source",
            )
        columns = [(str(name), array)]
        if array.ndim == 2:
            columns = [(f"{name}_{number}", array[:, number]) for number in range(array.shape[1])]
        found.update(columns)
    sizes = {name: len(array) for name, array in found.items()}
    if len(set(sizes.values())) != 1 or not min(sizes.values()):
        raise DataError(
            f"{where}: got arrays of sizes {sizes}, expected equal sizes, at least 1",
            field="source",
        )
    return found


def _to_arrow(where: str, name: str, array: np.ndarray) -> Any:
    import pyarrow

    try:
        found = pyarrow.array(array, from_pandas=True)
        return found.cast(pyarrow.string()) if array.dtype.kind == "S" else found
    except OverflowError:
        problem = "has an integer that does not fit into 64 bits"
    except UnicodeError:
        problem = "has a text that is not valid Unicode"
    except pyarrow.ArrowException as error:
        problem = first_line(error)
    raise DataError(f"{where}: column {name!r}: {problem}", field="source")


def _import_function(reference: str) -> Any:
    module, _, name = reference.partition(":")
    if not module or not name:
        raise DataError(
            f"arrays: got function {reference!r}, expected `module:function`", field="function"
        )
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise DataError(
            f"arrays: cannot load {reference}: {first_line(error)}", field="function"
        ) from None
