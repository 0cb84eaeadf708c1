"""Maps Arrow types to kinds of columns, and converts errors of pyarrow."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orbit_runner.data.tables.columns import CATEGORY, NUMBER
from orbit_runner.errors import DataError, first_line


def kind_of(kind: Any, *, from_text: bool = False) -> str:
    """Returns `number`, `category`, or the name of a type that cannot be used.

    With `from_text`, the type was inferred from texts, which can always be used as a category.
    """
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return NUMBER
    texts = (types.is_boolean, types.is_string, types.is_large_string, types.is_null)
    if from_text or any(test(kind) for test in texts):
        return CATEGORY
    return str(kind)


@contextlib.contextmanager
def read_error_scope(path: Path, what: str) -> Iterator[None]:
    """Turns an error of pyarrow into a `DataError` that names the file."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, EOFError, zlib.error, UnicodeError) as error:
        raise DataError(
            f"{path}: cannot be read as {what}: {first_line(error)}", field="input_path"
        ) from None
