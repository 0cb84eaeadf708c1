"""Reads the columns of a table, and caches those that took long to read.

Each column has its own file, so that adding a feature does not read the others again. A cached
column is mapped into memory, and its pages are read when they are used.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from orbit_runner.data.disk_cache import KEPT_SECONDS, CacheEntry, Values, file_status
from orbit_runner.data.tables.build import BadRows, Parts, build_columns
from orbit_runner.data.tables.columns import Column, TableSource, check_names
from orbit_runner.data.tables.dataset import TableDataset
from orbit_runner.errors import DataError, format_list
from orbit_runner.utils.log import note

_THREADS = 4
_LISTED = 10
_CachedColumn = tuple[Column, Parts, BadRows]


def read_table(
    dataset: TableDataset, kinds: Mapping[str, str], *, kept_seconds: float = KEPT_SECONDS
) -> TableSource:
    """Returns the columns of a table, from the cache if the files have not changed.

    Args:
        dataset: The table.
        kinds: The kind of each column: `number`, `integer`, `category`, `date` or `key`.
        kept_seconds: Columns are cached if reading them took longer.

    Raises:
        DataError: A column is missing, a value does not fit the kind of its column, or more rows
            than `max_bad_records` cannot be read.
    """
    check_names(dataset.name, list(kinds), list(dataset.kinds))
    options = dataclasses.asdict(dataset.options)
    files = [file_status(path) for path in dataset.files]
    stored = {
        name: CacheEntry("tables", [dataset.name, options, name, kind], files)
        for name, kind in kinds.items()
        if files
    }
    with ThreadPoolExecutor(_THREADS) as pool:  # Checksums take most of the time.
        hits = zip(stored, pool.map(_read, stored.values()), strict=True)
    entries = {name: hit for name, hit in hits if hit}
    lacking = {name: kind for name, kind in kinds.items() if name not in entries}
    if lacking:
        began = time.monotonic()
        columns, parts, bad = build_columns(dataset, lacking)
        entries |= {name: (column, parts, bad) for name, column in columns.items()}
        if files and time.monotonic() - began > kept_seconds:
            for name, column in columns.items():
                stored[name].write(_values(column, parts, bad))
                # The mapped file takes the place of the array in memory.
                entries[name] = _read(stored[name]) or entries[name]
    parts = next(iter(entries.values()))[1]
    if any(other != parts for _, other, _ in entries.values()):
        raise DataError(
            f"{dataset.name}: the files changed while they were read", code="data-changed"
        )
    bad = {row: problem for *_, rows in entries.values() for row, problem in rows.items()}
    total = sum(rows for _, rows in parts)
    _check_bad_records(dataset.name, bad, dataset.options.max_bad_records, total, "rows")
    return TableSource(
        name=dataset.name,
        columns={name: entries[name][0] for name in kinds},
        parts=parts,
        files=dataset.files,
        bad_rows=tuple(sorted(bad)),
    )


def _check_bad_records(
    source: str, problems: Mapping[int, str], limit: int, total: int, what: str
) -> None:
    """Logs the records that are left out.

    `problems` maps the number of each record in the source to the reason, with its file and its
    position in the file. `what` is the plural for records, such as `rows`. Raises `DataError` if
    there are more than `limit`, or if they are all `total` records.
    """
    if not problems:
        return
    lines = format_list([problems[number].splitlines()[0] for number in sorted(problems)], _LISTED)
    if len(problems) > limit:
        raise DataError(
            f"{source}: {len(problems):,} of {total:,} {what} cannot be read, more than "
            f"max_bad_records={limit}\n{lines}",
            field="max_bad_records",
            code="too-many-bad-records",
        )
    if len(problems) == total:
        raise DataError(
            f"{source}: none of the {total:,} {what} can be read\n{lines}",
            field="input_path",
            code="empty-data",
        )
    note(
        f"warning: {source}: {len(problems):,} of {total:,} {what} cannot be read and are left "
        f"out, at most {limit:,} (max_bad_records)\n{lines}"
    )


def _read(entry: CacheEntry) -> _CachedColumn | None:
    values = entry.read()
    if values is None:
        return None
    parts = [(str(name), int(rows)) for name, rows in values.pop("parts")]
    bad = {int(row): str(problem) for row, problem in values.pop("bad")}
    return Column(**values | {"vocabulary": tuple(values["vocabulary"])}), parts, bad


def _values(column: Column, parts: Parts, bad: BadRows) -> Values:
    return {**vars(column), "parts": parts, "bad": [*bad.items()]}
