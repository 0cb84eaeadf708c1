"""Excludes rows that cannot be read."""

from __future__ import annotations

import numpy as np

from orbit_runner.data.tables.columns import TableSource
from orbit_runner.errors import DataError

# The number of each row in the table, and why it cannot be read, with its file and row.
BadRows = dict[int, str]
HINT = "to skip such rows, set max_bad_records to the largest number that you expect"


def exclude_bad_rows(source: TableSource, rows: np.ndarray | None = None) -> np.ndarray | None:
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
