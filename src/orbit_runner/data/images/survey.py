"""Surveys the headers of all images of a dataset: channels, sizes, orientation; no TensorFlow.

One image does not decide for the others: `channels` follows from all of them. The result is cached
until a file changes, because there may be a million files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from orbit_runner.data.array_record.source import ArrayRecordSource
from orbit_runner.data.bad_records.result_cache import key_of
from orbit_runner.data.images.files import FileSource
from orbit_runner.data.images.headers import ImageHeader, ImageSurvey, Tally, read_header
from orbit_runner.data.tfrecord.example import bytes_of, features_of
from orbit_runner.data.tfrecord.framing import HEAD_BYTES, TAIL_BYTES, unreadable_error
from orbit_runner.data.tfrecord.source import RecordSource
from orbit_runner.utils.cache import cache_directory, write_shared_file
from orbit_runner.utils.log import Progress

Source = TypeVar("Source", FileSource, RecordSource, ArrayRecordSource)

_FORMAT = 1
# Surveys that took less time are not cached.
_CACHED_SECONDS = 1.0
# Where images are resized, the config sets the channels, and these many show the rest.
_SAMPLED_FILES, _SAMPLED_RECORDS = 10_000, 256
_THREADS = 8
_HEAD_BYTES = (2**12, 2**18)  # Most headers are short, but some contain a large thumbnail.
_RECORDS_AT_ONCE = 64


def add_survey(source: Source, *, resized: bool) -> Source:
    """Returns a source with the survey of its images, which decides on its channels.

    If `resized`, the config sets the channels, and only some images are surveyed.
    """
    survey = _survey(source, resized)
    height, width, channels = source.image_shape
    if height and not resized:
        channels = survey.channels or channels
    return dataclasses.replace(source, survey=survey, image_shape=(height, width, channels))


def _survey(source: FileSource | RecordSource | ArrayRecordSource, resized: bool) -> ImageSurvey:
    if isinstance(source, FileSource):
        numbers = _choose_numbers(source.size, _SAMPLED_FILES if resized else source.size)
        paths = [source.paths[number] for number in numbers]
        key = key_of(paths, ["survey", str(source.size)])
        headers = _file_headers(paths)
    else:
        settings = [source.image_key, str(source.part), str(resized), str(source.size)]
        key = key_of(source.files, ["survey", *settings])
        headers = _record_headers(source, resized)
    survey = _read_cached(key)
    if survey is not None:
        return survey
    start = time.monotonic()
    survey = ImageSurvey(total=source.size)
    progress = Progress("reading the headers of images")
    for name, header in headers:
        survey.add(name, header)
        if survey.surveyed % 1024 == 0:
            progress(f"{survey.surveyed:,} images")
    if time.monotonic() - start > _CACHED_SECONDS:
        _write_cached(key, survey)
    return survey


def _choose_numbers(size: int, most: int) -> list[int]:
    """Returns at most `most` numbers below `size`, evenly spread, the first among them."""
    count = min(size, most)
    return [number * size // count for number in range(count)]


def _file_headers(paths: Sequence[str]) -> Iterator[tuple[str, ImageHeader | None]]:
    with ThreadPoolExecutor(_THREADS) as pool:
        yield from zip(paths, pool.map(_file_header, paths, chunksize=64), strict=True)


def _file_header(path: str) -> ImageHeader | None:
    with contextlib.suppress(OSError):
        for size in _HEAD_BYTES:
            with open(path, "rb") as file, contextlib.suppress(ValueError):
                return read_header(file.read(size))
    return None


def _record_headers(
    source: RecordSource | ArrayRecordSource, resized: bool
) -> Iterator[tuple[str, ImageHeader | None]]:
    if isinstance(source, RecordSource):
        records = _read_records(source, resized)
    else:
        records = _read_array_records(source, resized)
    for name, record in records:
        header = None
        # The pipeline reports a record without an image.
        with contextlib.suppress(ValueError, KeyError):
            header = read_header(bytes_of(features_of(record)[source.image_key]))
        yield name, header


def _read_records(source: RecordSource, resized: bool) -> Iterator[tuple[str, bytes]]:
    """Yields the records with their names: all, or the first one of some blocks."""
    blocks = source.blocks
    chosen = _choose_numbers(len(blocks.file), _SAMPLED_RECORDS if resized else len(blocks.file))
    for block in chosen:
        path, offset = source.files[int(blocks.file[block])], int(blocks.offset[block])
        count = 1 if resized else int(blocks.records[block])
        for number, record in enumerate(_records_from(path, offset, count)):
            yield f"{path}: record {int(blocks.place[block]) + number}", record


def _records_from(path: Path, offset: int, count: int) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            for _ in range(count):
                head = file.read(HEAD_BYTES)
                yield file.read(int.from_bytes(head[:8], "little"))
                file.seek(TAIL_BYTES, 1)
    except OSError as error:
        raise unreadable_error(path, error) from None


def _read_array_records(source: ArrayRecordSource, resized: bool) -> Iterator[tuple[str, bytes]]:
    numbers = _choose_numbers(source.size, _SAMPLED_RECORDS if resized else source.size)
    for start in range(0, len(numbers), _RECORDS_AT_ONCE):
        part = numbers[start : start + _RECORDS_AT_ONCE]
        for number, record in zip(part, source.read(part), strict=True):
            file, place = source.place(number)
            yield f"{source.files[file]}: record {place}", record


def _read_cached(key: Mapping[str, Any]) -> ImageSurvey | None:
    try:
        entry = json.loads(_cache_path(key).read_bytes())
        if entry["key"] != dict(key) or entry["format"] != _FORMAT:
            return None
        values: dict[str, Any] = {
            name: Tally(**value) if isinstance(value, dict) else value
            for name, value in entry["survey"].items()
        }
        for name in ("smallest", "largest"):
            height, width = values[name]
            values[name] = height, width
        return ImageSurvey(**values)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_cached(key: Mapping[str, Any], survey: ImageSurvey) -> None:
    entry = {"format": _FORMAT, "key": key, "survey": dataclasses.asdict(survey)}
    # If the cache cannot be written, the next run only takes longer.
    with contextlib.suppress(OSError):
        write_shared_file(_cache_path(key), json.dumps(entry).encode())


def _cache_path(key: Mapping[str, Any]) -> Path:
    # Sizes and times are not part of the name, so that a new survey replaces the old one.
    text = json.dumps([key["files"], key["what"]])
    return cache_directory("images") / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.survey"
