"""MovieLens 100K, 1M and 20M in their original files; every rating counts as an interaction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from orbit_runner.config.schema.data import input_paths
from orbit_runner.data.bad_records import check_bad_records
from orbit_runner.data.dataset import Reader
from orbit_runner.data.disk_cache import Values, cached, file_status
from orbit_runner.data.files import data_folder, download_hint, named_files
from orbit_runner.data.ratings.interactions import Interactions
from orbit_runner.data.ratings.parsing import Layout, parse_ratings
from orbit_runner.errors import DataError, format_choices, format_count

# The README of each dataset describes the format of its lines.
_FILES = MappingProxyType(
    {
        "100k": ("u.data", Layout(b"\t")),
        "1m": ("ratings.dat", Layout(b"::")),
        "20m": ("ratings.csv", Layout(b",", b"userId,movieId,rating,timestamp")),
    }
)


def load(
    *,
    data_dir: str = "",
    input_path: Sequence[str] = (),
    variant: str = "",
    max_bad_records: int = 0,
) -> Interactions:
    """Returns all ratings in the order of the file, regardless of their stars.

    `data_dir` contains `u.data` (100K), `ratings.dat` (1M) or `ratings.csv` (20M), or the directory
    `ml-100k`, `ml-1m` or `ml-20m`. `input_path` is the file to read instead.

    `variant` is `100k`, `1m` or `20m`, also for datasets of another size in the same format; by
    default, the one that is found. Up to `max_bad_records` lines are left out because they cannot
    be parsed. Raises `DataError` if the file is missing or invalid, or if several are found.
    """
    if input_path:
        path, variant, field = *_named_file(data_dir, input_path, variant), "input_path"
    else:
        path, variant, field = *_find_file(data_dir, variant), "data_dir"
    layout = _FILES[variant][1]
    name = f"movielens {variant}"
    bad = dict[int, str]()
    if max_bad_records:  # Not cached, because the cache only has numbers.
        users, items, times = parse_ratings(path, layout, field=field, bad=bad)
    else:
        users, items, times = _load_or_parse(path, layout, field)
    first = 2 if layout.header else 1
    check_bad_records(name, bad, max_bad_records, len(users) + len(bad), "lines")
    return Interactions(
        name, users, items, times, files=(path,), first_line=first, bad_lines=tuple(sorted(bad))
    )


def _load_or_parse(path: Path, layout: Layout, field: str) -> np.ndarray:
    """Returns the ratings of `parse_ratings`, from the cache if the file has not changed."""

    def parse() -> Values:
        numbers = parse_ratings(path, layout, field=field)
        return {"numbers": numbers.astype(np.int32) if numbers.max() < 2**31 else numbers}

    key = [layout.separator.decode(), layout.header.decode()]
    values = cached("ratings", key, parse, [file_status(path, field)])
    return np.asarray(values["numbers"], np.int64)


def _named_file(data_dir: str, input_path: Sequence[str], variant: str) -> tuple[Path, str]:
    files = named_files("movielens", data_dir, input_path)
    if len(files) != 1:
        raise DataError(
            f"movielens: got {format_count(len(files), 'file')}, expected 1",
            field="input_path",
            code="not-allowed",
        )
    endings = {Path(name).suffix: known for known, (name, _) in _FILES.items()}
    kind = variant or endings.get(files[0].suffix, "")
    if not kind:
        raise DataError(
            f"movielens: {files[0]}: cannot infer the format from the file name; set variant "
            f"to {format_choices(_FILES)}",
            field="variant",
            code="not-set",
        )
    return files[0], kind


def _find_file(data_dir: str, variant: str) -> tuple[Path, str]:
    kinds = [variant] if variant else ["1m", "100k", "20m"]
    hint = download_hint(*(f"ml-{kind}" for kind in kinds), data_dir=data_dir)
    directory = data_folder("movielens", data_dir, hint)
    wanted = [variant] if variant else list(_FILES)
    places = {
        kind: [directory / _FILES[kind][0], directory / f"ml-{kind}" / _FILES[kind][0]]
        for kind in wanted
    }
    matches = [(path, kind) for kind, paths in places.items() for path in paths if path.is_file()]
    if not matches:
        names = format_choices(_FILES[kind][0] for kind in wanted)
        below = format_choices(f"ml-{kind}" for kind in wanted)
        raise DataError(
            f"movielens: no {names} in {directory} or its subdirectory {below}; {hint}",
            code="missing-file",
        )
    if len(matches) > 1:
        paths = " and ".join(str(path) for path, _ in matches)
        raise DataError(
            f"movielens: found {paths}; set variant to select one", field="variant", code="not-set"
        )
    return matches[0]


def _arguments(section: Any) -> dict[str, object]:
    return {
        "data_dir": section.data_dir,
        "input_path": input_paths(section),
        "variant": section.variant,
        "max_bad_records": section.max_bad_records,
    }


RATINGS = Reader(load, _arguments)
