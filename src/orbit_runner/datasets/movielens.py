"""MovieLens 100K, 1M and 20M in their original files; every rating counts as an interaction."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from orbit_runner.config.schema.data import input_paths
from orbit_runner.data.dataset import Reader
from orbit_runner.data.disk_cache import Values, cached, file_status
from orbit_runner.data.files import data_folder, download_hint, named_files
from orbit_runner.data.ratings.interactions import Interactions
from orbit_runner.errors import DataError, format_choices, format_count

_CHUNK_BYTES = 2**24
# A file without line ends, such as one of zeros, must not be read into memory as a whole.
_MAX_LINE_BYTES = 1 << 20
_MOST_DIGITS = 18
_FIELDS = ("user", "item", "rating", "time")


@dataclasses.dataclass(frozen=True)
class _Layout:
    """The format of a line: user, item, rating, time."""

    separator: bytes  # If there are several bytes, all must be equal.
    header: bytes = b""  # The first line of the file; empty if it has no header.

    @property
    def pattern(self) -> re.Pattern[bytes]:
        """The pattern of a valid line; `_parse_fields` accepts these lines."""
        number = rb"\d{1,%d}" % _MOST_DIGITS
        fields = (number, number, rb"\d{1,9}(?:\.\d{1,9})?", number)
        return re.compile(re.escape(self.separator).join(fields))


# The README of each dataset describes the format of its lines.
_FILES = MappingProxyType(
    {
        "100k": ("u.data", _Layout(b"\t")),
        "1m": ("ratings.dat", _Layout(b"::")),
        "20m": ("ratings.csv", _Layout(b",", b"userId,movieId,rating,timestamp")),
    }
)


def load(
    *,
    data_dir: str = "",
    input_path: Sequence[str] = (),
    variant: str = "",
) -> Interactions:
    """Returns all ratings in the order of the file, regardless of their stars.

    `data_dir` contains `u.data` (100K), `ratings.dat` (1M) or `ratings.csv` (20M), or the directory
    `ml-100k`, `ml-1m` or `ml-20m`. `input_path` is the file to read instead.

    `variant` is `100k`, `1m` or `20m`, also for datasets of another size in the same format; by
    default, the one that is found. Raises `DataError` if the file is missing or invalid, or if
    several are found.
    """
    if input_path:
        path, variant, field = *_named_file(data_dir, input_path, variant), "input_path"
    else:
        path, variant, field = *_find_file(data_dir, variant), "data_dir"
    layout = _FILES[variant][1]
    name = f"movielens {variant}"
    users, items, times = _load_or_parse(path, layout, field)
    return Interactions(name, users, items, times, files=(path,))


def _load_or_parse(path: Path, layout: _Layout, field: str) -> np.ndarray:
    """Returns the ratings of `_parse_ratings`, from the cache if the file has not changed."""

    def parse() -> Values:
        numbers = _parse_ratings(path, layout, field=field)
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
    }


def _parse_ratings(path: Path, layout: _Layout, *, field: str) -> np.ndarray:
    """Returns the users, items and times of a file, in its order: int64 [3, n].

    Raises DataError for the setting `field` if the file cannot be read or is empty, or if a line is
    not valid.
    """
    parts = [np.zeros((3, 0), np.int64)]
    line = 1
    try:
        for chunk in _read_chunks(path):
            if line == 1 and layout.header:
                chunk = _strip_header(path, chunk, layout, field)
                line += 1
            if chunk:
                parts.append(_parse(path, chunk, layout, line, field))
                line += chunk.count(b"\n")
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read: {error.strerror}", field=field, code="unreadable-file"
        ) from None
    if not parts[1:]:
        raise DataError(
            f"{path}: contains no ratings, expected one per line", field=field, code="empty-data"
        )
    return np.concatenate(parts, axis=1)


def _read_chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            chunk += file.readline(_MAX_LINE_BYTES)
            chunk = chunk.replace(b"\r\n", b"\n")
            yield chunk if chunk.endswith(b"\n") else chunk + b"\n"


def _strip_header(path: Path, chunk: bytes, layout: _Layout, field: str) -> bytes:
    first, _, rest = chunk.partition(b"\n")
    if first != layout.header:
        raise DataError(
            f"{path}:1: got {_format_line(first)}, expected the header "
            f"{_format_line(layout.header)}",
            field=field,
            code="bad-record",
        )
    return rest


def _parse(path: Path, chunk: bytes, layout: _Layout, line: int, field: str) -> np.ndarray:
    ratings = _parse_fields(chunk, layout)
    if ratings is not None:
        return ratings
    # A line is not valid. Match each line, which is slow, to report which one.
    pattern = layout.pattern
    lines = enumerate(chunk.split(b"\n")[:-1], start=line)
    number, text = next((n, text) for n, text in lines if not pattern.fullmatch(text))
    separator = repr(layout.separator.decode())
    raise DataError(
        f"{path}:{number}: got {_format_line(text)}, expected four numbers separated by "
        f"{separator}: {', '.join(_FIELDS)}",
        field=field,
        code="bad-record",
    )


def _parse_fields(text: bytes, layout: _Layout) -> np.ndarray | None:
    """Returns the users, items and times of lines, int64 [3, n]; None if one is not valid."""
    # Not at the top, because its import takes longer than reading the cache.
    import pyarrow
    from pyarrow import csv

    separator = layout.separator
    # Arrow accepts other numbers, such as 0x1F, and other line ends.
    if text.translate(None, b"0123456789.\n" + separator):
        return None
    if len(separator) > 1:  # Arrow splits at one character.
        if b"\t" in text:
            return None
        text, separator = text.replace(separator, b"\t"), b"\t"
    kinds = (pyarrow.uint64(), pyarrow.uint64(), pyarrow.float64(), pyarrow.uint64())
    try:
        table = csv.read_csv(
            pyarrow.BufferReader(text),
            csv.ReadOptions(column_names=_FIELDS),
            csv.ParseOptions(
                delimiter=separator.decode(),
                quote_char=False,
                ignore_empty_lines=False,
            ),
            csv.ConvertOptions(column_types=dict(zip(_FIELDS, kinds, strict=True)), null_values=[]),
        )
        names = ("user", "item", "time")
        numbers = np.stack([table[name].cast(pyarrow.int64()).to_numpy() for name in names])
    except pyarrow.ArrowInvalid:
        return None
    return numbers if numbers.max() < 10**_MOST_DIGITS else None


def _format_line(text: bytes) -> str:
    quoted = repr(text.decode("utf-8", "replace"))
    return quoted if len(quoted) <= 80 else f"{quoted[:77]}…'"


RATINGS = Reader(load, _arguments)
