"""Rows that cannot be read: an error, or left out up to a limit and listed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from orbit_runner.data.tables.columns import TableSource
from orbit_runner.errors import DataError, format_list
from orbit_runner.utils.log import note

# The number of each row in the table, and why it cannot be read, with its file and row.
BadRows = dict[int, str]
HINT = "to leave such rows out, set max_bad_records to the most that you expect"
_LISTED = 10


def check_bad_rows(source: str, found: Mapping[int, str], limit: int, rows: int) -> None:
    """Logs the rows that are left out.

    Raises `DataError` if they are more than `limit`, or all rows of the table.
    """
    if not found:
        return
    lines = format_list([found[row].splitlines()[0] for row in sorted(found)], _LISTED)
    if len(found) > limit:
        raise DataError(
            f"{source}: {len(found):,} of {rows:,} rows cannot be read, more than "
            f"max_bad_records={limit}\n{lines}",
            field="max_bad_records",
        )
    if len(found) == rows:
        raise DataError(
            f"{source}: none of the {rows:,} rows can be read\n{lines}", field="input_path"
        )
    note(
        f"warning: {source}: {len(found):,} of {rows:,} rows cannot be read and are left out, at "
        f"most {limit:,} (max_bad_records)\n{lines}"
    )


def without_bad_rows(source: TableSource, rows: np.ndarray | None = None) -> np.ndarray | None:
    """Returns the rows, int64 [k], that can be read, in order; None for all rows of a table.

    Raises `DataError` if none of them can be read.
    """
    if not source.bad_rows:
        return rows
    every = np.arange(source.size) if rows is None else rows
    good = every[~np.isin(every, source.bad_rows)]
    if not len(good):
        raise DataError(
            f"{source.name}: none of the {len(every):,} rows of this part can be read",
            field="input_path",
        )
    return good
