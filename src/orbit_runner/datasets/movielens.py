"""MovieLens 100K, 1M and 20M in their original files; every rating counts as an interaction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from orbit_runner.data.disk_cache import Values, cached, file_status
from orbit_runner.data.files import data_folder, download_hint, named_files
from orbit_runner.data.ratings.interactions import Interactions
from orbit_runner.errors import DataError, first_line, format_choices, shorten


class _Layout(NamedTuple):
    """The format of a file: user, item, rating and time on each line."""

    file: str
    delimiter: str
    columns: tuple[str, ...]  # In the order of a line; an empty one starts with an underscore.
    has_header: bool = False


# The README of each dataset describes the format of its lines.
_LAYOUTS = {
    "100k": _Layout("u.data", "\t", ("user", "item", "rating", "time")),
    # Arrow splits at one character, and this file has two colons.
    "1m": _Layout("ratings.dat", ":", ("user", "_1", "item", "_2", "rating", "_3", "time")),
    "20m": _Layout("ratings.csv", ",", ("userId", "movieId", "rating", "timestamp"), True),
}


def load(*, data_dir: str = "", input_path: Sequence[str] = ()) -> Interactions:
    """Returns all ratings in the order of the file, regardless of their stars.

    `data_dir` contains `u.data` (100K), `ratings.dat` (1M) or `ratings.csv` (20M), or the directory
    `ml-100k`, `ml-1m` or `ml-20m`. `input_path` is the file to read instead; its suffix decides on
    the format. Raises `DataError` if the file is missing or invalid, or if several are found.
    """
    path = _find_file(data_dir, input_path)
    field = "input_path" if input_path else "data_dir"
    variants = {Path(layout.file).suffix: variant for variant, layout in _LAYOUTS.items()}
    variant = variants.get(path.suffix)
    if variant is None:
        raise DataError(
            f"movielens: got {path}, expected the suffix {format_choices(variants)}",
            field=field,
            code="not-allowed",
        )

    def parse() -> Values:
        numbers = _parse_ratings(path, _LAYOUTS[variant], field)
        return {"numbers": numbers.astype(np.int32) if numbers.max() < 2**31 else numbers}

    values = cached("ratings", variant, parse, [file_status(path, field)])
    users, items, times = np.asarray(values["numbers"], np.int64)
    return Interactions(f"movielens {variant}", users, items, times, files=(path,))


def _find_file(data_dir: str, input_path: Sequence[str]) -> Path:
    if input_path:
        files = named_files("movielens", data_dir, input_path)
    else:
        hint = download_hint("ml-1m", "ml-100k", "ml-20m", data_dir=data_dir)
        directory = data_folder("movielens", data_dir, hint)
        paths = [
            folder / layout.file
            for variant, layout in _LAYOUTS.items()
            for folder in (directory, directory / f"ml-{variant}")
        ]
        files = [path for path in paths if path.is_file()]
        if not files:
            names = format_choices(layout.file for layout in _LAYOUTS.values())
            below = format_choices(f"ml-{variant}" for variant in _LAYOUTS)
            raise DataError(
                f"movielens: no {names} in {directory} or its subdirectory {below}; {hint}",
                code="missing-file",
            )
    if len(files) > 1:
        listing = " and ".join(map(str, files))
        raise DataError(
            f"movielens: got {listing}, expected 1 file; set input_path to one of them",
            field="input_path",
            code="not-allowed",
        )
    return files[0]


def _parse_ratings(path: Path, layout: _Layout, field: str) -> np.ndarray:
    """Returns the users, items and times of a file, in its order: int64 [3, n].

    Raises DataError for the setting `field` if the file cannot be read or is empty, or if a line is
    not valid.
    """
    # Not at the top, because its import takes longer than reading the cache.
    import pyarrow
    from pyarrow import csv

    used = [name for name in layout.columns if not name.startswith("_")]
    kinds = dict.fromkeys(layout.columns, pyarrow.null()) | dict.fromkeys(used, pyarrow.uint64())
    kinds[used[2]] = pyarrow.float64()
    try:
        with csv.open_csv(
            path,
            csv.ReadOptions(
                column_names=None if layout.has_header else layout.columns,
                use_threads=False,  # So that errors name the row.
            ),
            csv.ParseOptions(
                delimiter=layout.delimiter, quote_char=False, ignore_empty_lines=False
            ),
            csv.ConvertOptions(column_types=kinds, null_values=[""]),
        ) as reader:
            names = tuple(reader.schema.names)
            if names != layout.columns:
                raise pyarrow.ArrowInvalid(f"got the header {', '.join(names)}")
            table = reader.read_all()
        for name in used:
            if table[name].null_count:
                row = table[name].is_null().index(True).as_py() + 1 + layout.has_header
                raise pyarrow.ArrowInvalid(f"Row #{row}: has no {name}")
        user, item, _, moment = used
        columns = [table[name].cast(pyarrow.int64()).to_numpy() for name in (user, item, moment)]
    except (pyarrow.ArrowException, OSError) as error:
        separator = "::" if layout.delimiter == ":" else layout.delimiter
        raise DataError(
            f"{path}: {shorten(first_line(error), 200)}\n"
            f"expected lines of {', '.join(used)}, separated by {separator!r}",
            field=field,
            code="bad-record",
        ) from None
    if not table.num_rows:
        raise DataError(f"{path}: contains no ratings", field=field, code="empty-data")
    return np.stack(columns)
