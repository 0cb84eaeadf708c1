"""Reads the columns of a table, and caches those that took long to read.

Each column has its own file, so that adding a feature does not read the others again. A cached
column is mapped into memory, and its pages are read when they are used.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import time
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from orbit_runner.data.bad_records.report import check_bad_records
from orbit_runner.data.tables.build import BadRows, Parts, build_columns
from orbit_runner.data.tables.columns import INTEGER, NUMBER, Column, TableSource, check_names
from orbit_runner.data.tables.dataset import TableDataset
from orbit_runner.errors import DataError
from orbit_runner.utils.cache import cache_directory, write_shared_file

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

_FORMAT = 4
# Tables that were read faster are not worth the space.
_KEPT_SECONDS = 1.0
_ALIGNED = 64
_THREADS = 4
_CachedColumn = tuple[Column, Parts, BadRows]


def read_table(
    dataset: TableDataset, kinds: Mapping[str, str], *, kept_seconds: float = _KEPT_SECONDS
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
    keys = {name: _cache_key(dataset, name, kind) for name, kind in kinds.items()}
    with ThreadPoolExecutor(_THREADS) as pool:  # Checksums take most of the time.
        hits = zip(keys, pool.map(_read, keys.values()), strict=True)
    entries = {name: hit for name, hit in hits if hit}
    lacking = {name: kind for name, kind in kinds.items() if name not in entries}
    if lacking:
        began = time.monotonic()
        columns, parts, bad = build_columns(dataset, lacking)
        entries |= {name: (column, parts, bad) for name, column in columns.items()}
        if dataset.files and time.monotonic() - began > kept_seconds:
            for name, column in columns.items():
                _write(keys[name], column, parts, bad)
                # The mapped file takes the place of the array in memory.
                entries[name] = _read(keys[name]) or entries[name]
    parts = next(iter(entries.values()))[1]
    if any(other != parts for _, other, _ in entries.values()):
        raise DataError(
            f"{dataset.name}: the files changed while they were read", code="data-changed"
        )
    bad = {row: problem for *_, rows in entries.values() for row, problem in rows.items()}
    total = sum(rows for _, rows in parts)
    check_bad_records(dataset.name, bad, dataset.options.max_bad_records, total, "rows")
    return TableSource(
        name=dataset.name,
        columns={name: entries[name][0] for name in kinds},
        parts=parts,
        files=dataset.files,
        bad_rows=tuple(sorted(bad)),
    )


def _cache_key(dataset: TableDataset, name: str, kind: str) -> JsonObject:
    """Returns the cache key of a column: everything that its values depend on."""
    paths = [path.absolute() for path in dataset.files]
    try:
        status = [os.stat(path) for path in paths]
    except OSError as error:
        raise DataError(
            f"{error.filename}: cannot be read ({error.strerror})", code="unreadable-file"
        ) from None
    return {
        "format": _FORMAT,
        "source": dataset.name,
        "files": [os.fspath(path) for path in paths],
        "bytes": [file_status.st_size for file_status in status],
        "mtime_ns": [file_status.st_mtime_ns for file_status in status],
        "options": dataclasses.asdict(dataset.options) if dataset.files else {},
        "column": name,
        "kind": kind,
    }


def _entry_path(key: JsonObject) -> Path:
    # Sizes and times are not part of the name, so that a changed file replaces its columns.
    text = json.dumps([key[name] for name in ("source", "files", "options", "column", "kind")])
    return cache_directory("tables") / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.column"


def _read(key: JsonObject) -> _CachedColumn | None:
    if not key["files"]:
        return None
    entry = _entry_path(key)
    try:
        with entry.open("rb") as file:
            header = json.loads(file.readline())
        if header["key"] != json.loads(json.dumps(key)):
            return None
        values = np.memmap(entry, header["dtype"], "r", header["offset"], (header["rows"],))
        if zlib.crc32(values.data) != header["crc32"]:
            return None
        kind = NUMBER if key["kind"] == INTEGER else key["kind"]
        column = Column(key["column"], kind, values, tuple(header["vocabulary"]))
        parts = [(str(name), int(rows)) for name, rows in header["parts"]]
        return column, parts, {int(row): str(problem) for row, problem in header["bad"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(key: JsonObject, column: Column, parts: Parts, bad: BadRows) -> None:
    values = np.ascontiguousarray(column.values)
    header = {
        "key": key,
        "parts": parts,
        "bad": [*bad.items()],
        "dtype": values.dtype.str,
        "rows": len(values),
        "crc32": zlib.crc32(values.data),
        "vocabulary": column.vocabulary,
        "offset": 0,
    }
    # The offset is part of the line whose length it depends on; 20 characters are enough for it.
    size = len(json.dumps(header)) + 20
    header["offset"] = -(-size // _ALIGNED) * _ALIGNED
    head = json.dumps(header).encode()
    head += b" " * (header["offset"] - len(head) - 1) + b"\n"
    # If the cache cannot be written, the next run only takes longer.
    with contextlib.suppress(OSError):
        write_shared_file(_entry_path(key), head + values.tobytes())
