"""Tables of NumPy arrays: `.npz` files, and arrays that a Python function returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from orbit_runner.config.signatures import reference_problem
from orbit_runner.data.arrays import read_npz
from orbit_runner.data.tables.arrow import kind_of
from orbit_runner.data.tables.columns import CATEGORY, DATE, NUMBER
from orbit_runner.data.tables.dataset import (
    Block,
    TableDataset,
    TableOptions,
    TableReader,
    check_columns,
    table_files,
)
from orbit_runner.errors import DataError, SettingError, first_line
from orbit_runner.utils.user_code import import_function

if TYPE_CHECKING:
    import pyarrow

_KINDS = {"f": NUMBER, "i": NUMBER, "u": NUMBER, "b": CATEGORY, "U": CATEGORY, "S": CATEGORY}


def array_table(
    name: str,
    tables: Sequence[tuple[str, Mapping[str, np.ndarray]]],
    files: Sequence[Path] = (),
    options: TableOptions = TableOptions(),
) -> TableDataset:
    """Returns a table of arrays [n].

    Args:
        name: The value of `source`.
        tables: The name of each file or other origin, and its columns by name.
        files: The files that were read.
        options: The options that the values depend on.
    """
    where, columns = tables[0]
    kinds = {name: _kind_of_array(where, name, array) for name, array in columns.items()}

    def blocks(names: Sequence[str]) -> Iterator[Block]:
        for where, columns in tables:
            yield Block({name: _to_arrow(where, name, columns[name]) for name in names}, where, 1)

    return TableDataset(name, kinds, blocks, tuple(files), options)


def _load_npz(*, data_dir: str, input_path: Sequence[str], options: TableOptions) -> TableDataset:
    """Returns a table of `.npz` files, whose arrays are the columns."""
    files = table_files("npz", data_dir, input_path, "*.npz")
    columns = {path: flatten_columns(str(path), read_npz(path)) for path in files}
    check_columns(columns)
    return array_table("npz", [(str(path), columns[path]) for path in files], files, options)


def _load_function(*, options: TableOptions) -> TableDataset:
    """Returns a table of the arrays by name that `options.function` returns.

    Raises `DataError` if there is no such function, or it does not return arrays of equal length.
    """
    if problem := reference_problem(options.function, "my_package.data:load"):
        raise DataError(problem, field="function", code="import-failed")
    try:
        arrays = import_function(options.function, "function")()
    except SettingError as error:
        raise DataError(error.reason, field="function", code=error.code) from error
    if not hasattr(arrays, "items"):
        raise DataError(
            f"arrays: {options.function} returned {type(arrays).__name__}, expected arrays by name",
            field="function",
            code="bad-data",
        )
    columns = flatten_columns("arrays", dict(arrays.items()))
    return array_table("arrays", [(options.function, columns)], options=options)


NPZ = TableReader(_load_npz, file_start=b"PK\x03\x04")
FUNCTION = TableReader(_load_function)


def _kind_of_array(where: str, name: str, array: np.ndarray) -> str:
    if array.dtype.kind == "M":
        return DATE
    if array.dtype.kind in "mcV":  # Durations, complex numbers, records.
        return str(array.dtype)
    if array.dtype.kind == "O":
        return kind_of(_to_arrow(where, name, array).type)
    return _KINDS.get(array.dtype.kind, CATEGORY)


def flatten_columns(where: str, arrays: Mapping[str, object]) -> dict[str, np.ndarray]:
    """Returns arrays [n] by name. An array [n, k] called `x` gives `x_0` to `x_{k-1}`.

    Raises `DataError` if the arrays have different lengths or more than two axes.
    """
    flat_columns: dict[str, np.ndarray] = {}
    for name, value in arrays.items():
        array = np.asarray(value)
        if array.ndim not in (1, 2):
            raise DataError(
                f"{where}: array {name!r} has shape {list(array.shape)}, expected [rows] or "
                "[rows, columns]",
                field="source",
                code="bad-data",
            )
        columns = [(str(name), array)]
        if array.ndim == 2:
            columns = [(f"{name}_{number}", array[:, number]) for number in range(array.shape[1])]
        flat_columns.update(columns)
    sizes = {name: len(array) for name, array in flat_columns.items()}
    if len(set(sizes.values())) != 1 or not min(sizes.values()):
        raise DataError(
            f"{where}: got arrays of sizes {sizes}, expected equal sizes, at least 1",
            field="source",
            code="bad-data",
        )
    return flat_columns


def _to_arrow(where: str, name: str, array: np.ndarray) -> pyarrow.Array:
    import pyarrow

    try:
        arrow_array = pyarrow.array(array, from_pandas=True)
        return arrow_array.cast(pyarrow.string()) if array.dtype.kind == "S" else arrow_array
    except OverflowError:
        problem = "has an integer that does not fit into 64 bits"
    except UnicodeError:
        problem = "has a text that is not valid Unicode"
    except pyarrow.ArrowException as error:
        problem = first_line(error)
    raise DataError(f"{where}: column {name!r}: {problem}", field="source", code="bad-data")
