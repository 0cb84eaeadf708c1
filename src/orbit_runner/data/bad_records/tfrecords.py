"""Finds the records of TFRecord files that are not images with a label. Without TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from orbit_runner.data.bad_records.decoding import find_undecodable
from orbit_runner.data.bad_records.report import check_bad_records
from orbit_runner.data.bad_records.result_cache import key_of, read_result, write_result
from orbit_runner.data.tfrecord.framing import FileIndex

_KIND = "tfrecord"


def find_bad_records(
    name: str,
    files: Sequence[Path],
    indexes: Sequence[FileIndex],
    keys: tuple[str, str],
    limit: int,
) -> tuple[int, ...]:
    """Returns the numbers of the records to leave out, counted through all files, ascending.

    They are those whose data do not match their checksum, that are not a tf.Example with an image
    and a label, or whose image cannot be decoded. `keys` are the features of the image and of the
    label. All records are read once, and those of a file again if it changes. Raises `DataError` if
    there are more than `limit`.
    """
    parts = _find_problems(files, indexes, keys)
    firsts = np.cumsum([0, *(index.records for index in indexes)]).tolist()
    problems = {
        first + number: problem
        for first, part in zip(firsts, parts, strict=False)
        for number, problem in part.items()
    }
    check_bad_records(name, problems, limit, firsts[-1], "records")
    return tuple(sorted(problems))


def _find_problems(
    files: Sequence[Path], indexes: Sequence[FileIndex], keys: tuple[str, str]
) -> list[dict[int, str]]:
    """Returns the problems of each file by the numbers of its records."""
    cache_keys = [key_of([path], keys) for path in files]
    parts = [read_result(_KIND, key) for key in cache_keys]
    lacking = [number for number, part in enumerate(parts) if part is None]
    if not lacking:
        return [part or {} for part in parts]
    request = {
        "records": [os.fspath(files[number]) for number in lacking],
        "image": keys[0],
        "label": keys[1],
    }
    total = sum(indexes[number].records for number in lacking)
    problems = find_undecodable(request, "records", total)
    first = 0
    for number in lacking:
        last = first + indexes[number].records
        part = {
            place - first: problem for place, problem in problems.items() if first <= place < last
        }
        write_result(_KIND, cache_keys[number], part)
        parts[number] = part
        first = last
    return [part or {} for part in parts]
