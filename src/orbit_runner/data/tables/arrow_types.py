"""Maps Arrow types to kinds of columns, and converts errors of pyarrow."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from orbit_runner.data.tables.columns import CATEGORY, DATE, NUMBER
from orbit_runner.errors import DataError, first_line

if TYPE_CHECKING:
    import pyarrow


def kind_of(kind: pyarrow.DataType, *, from_text: bool = False) -> str:
    """Returns `number`, `category`, `date`, or the name of a type that cannot be used.

    With `from_text`, the type was inferred from texts, which can always be used as a category.
    """
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return NUMBER
    if types.is_date(kind) or types.is_timestamp(kind):
        return DATE
    if from_text or is_text(kind) or types.is_boolean(kind) or types.is_null(kind):
        return CATEGORY
    return str(kind)


def is_text(kind: pyarrow.DataType) -> bool:
    """Returns whether an Arrow type is one of the types of texts."""
    from pyarrow import types

    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def is_date_or_time(kind: str) -> bool:
    """Returns whether the description of a type is that of dates, times or durations."""
    return kind.startswith((DATE, "time", "duration"))


def leading_zeros(array: pyarrow.Array) -> np.ndarray:
    """Returns which texts of an Arrow string array begin with 0 and another digit, bool [n]."""
    from pyarrow import compute

    matches = compute.match_substring_regex(array, "^ *0[0-9]").fill_null(False)
    result: np.ndarray = matches.to_numpy(zero_copy_only=False)
    return result


@contextlib.contextmanager
def read_error_scope(path: Path, what: str) -> Iterator[None]:
    """Turns an error of pyarrow into a `DataError` that names the file."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, EOFError, zlib.error, UnicodeError) as error:
        raise DataError(
            f"{path}: cannot be read as {what}: {first_line(error)}",
            field="input_path",
            code="damaged-file",
        ) from None
