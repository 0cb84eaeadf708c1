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
from orbit_runner.data.places import Places
from orbit_runner.data.tables.build import Parts, build_columns
from orbit_runner.data.tables.columns import Column, TablePart, check_names
from orbit_runner.data.tables.dataset import TableDataset
from orbit_runner.errors import DataError

_THREADS = 4
_CachedColumn = tuple[Column, Parts]


def read_table(dataset: TableDataset, kinds: Mapping[str, str]) -> TablePart:
    """Returns the columns of a table, from the cache if the files have not changed.

    Args:
        dataset: The table.
        kinds: The kind of each column: `number`, `integer`, `category`, `date` or `key`.

    Raises:
        DataError: A column is missing, or a value does not fit the kind of its column.
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
        columns, parts = build_columns(dataset, lacking)
        entries |= {name: (column, parts) for name, column in columns.items()}
        if files and time.monotonic() - began > KEPT_SECONDS:
            for name, column in columns.items():
                stored[name].write(_values(column, parts))
                # The mapped file takes the place of the array in memory.
                entries[name] = _read(stored[name]) or entries[name]
    parts = next(iter(entries.values()))[1]
    if any(other != parts for _, other in entries.values()):
        raise DataError(
            f"{dataset.name}: the files changed while they were read", code="data-changed"
        )
    return TablePart(
        name=dataset.name,
        columns={name: entries[name][0] for name in kinds},
        places=Places(tuple(parts)),
        files=dataset.files,
    )


def _read(entry: CacheEntry) -> _CachedColumn | None:
    values = entry.read()
    if values is None:
        return None
    parts = [(str(name), int(rows)) for name, rows in values.pop("parts")]
    return Column(**values | {"vocabulary": tuple(values["vocabulary"])}), parts


def _values(column: Column, parts: Parts) -> Values:
    return {**vars(column), "parts": parts}
