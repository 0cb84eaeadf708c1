"""The child process of `decoding`: decodes images, and prints those that cannot be decoded.

It reads a JSON object from standard input, with either `images`, the paths of image files, or
`records`, the paths of TFRecord files, and their features `image` and `label`. It prints lines of
JSON: the number of images so far, and the numbers and problems of bad ones since the last line.
Numbers count through all files.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import tensorflow as tf

from orbit_runner.data.bad_records.result_cache import CANNOT_BE_READ
from orbit_runner.data.images.decode import decode_window
from orbit_runner.data.tfrecord.bad_record import find_damaged_record
from orbit_runner.data.tfrecord.example import bytes_of, example_problem, features_of
from orbit_runner.data.tfrecord.framing import (
    HEAD_BYTES,
    TAIL_BYTES,
    has_valid_checksum,
    records_of,
)

_T = TypeVar("_T")
_CHUNK_ITEMS = 256
# The number of channels does not decide whether a JPEG or PNG image can be decoded.
_CHANNELS = 3
# TensorFlow's messages begin and end with the name of the op.
_OP = re.compile(r"^\{\{.*?\}\} ?| ?\[Op:.*$", re.DOTALL)


def main() -> None:
    """Answers the request on standard input."""
    request = json.load(sys.stdin)
    first = 0
    with ThreadPoolExecutor() as pool:
        if "images" in request:
            _print_problems(pool, request["images"], _file_problem, 0)
        for name in request.get("records", ()):
            path = Path(name)
            check = _make_record_check(path, request["image"], request["label"])
            first = _print_problems(pool, _numbered_records(path), check, first)


def _print_problems(
    pool: ThreadPoolExecutor, items: Iterable[_T], check: Callable[[_T], str], first: int
) -> int:
    """Prints the problems of items, which are numbered from `first`; returns the next number."""
    left = iter(items)
    while chunk := list(itertools.islice(left, _CHUNK_ITEMS)):
        problems = enumerate(pool.map(check, chunk), first)
        first += len(chunk)
        _print_progress(first, [(number, problem) for number, problem in problems if problem])
    return first


def _print_progress(done: int, bad: Sequence[tuple[int, str]]) -> None:
    print(json.dumps({"done": done, "bad": bad}), flush=True)


def _file_problem(path: str) -> str:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        return f"{path}: {CANNOT_BE_READ} ({error.strerror})"
    problem = _image_problem(content)
    return f"{path}: {problem}" if problem else ""


def _image_problem(encoded: bytes) -> str:
    try:
        decode_window(tf.constant(encoded), _CHANNELS)
    except (tf.errors.OpError, ValueError) as error:
        text = error.message if isinstance(error, tf.errors.OpError) else str(error)
        reason = _OP.sub("", text).strip().splitlines()
        return f"cannot be decoded ({reason[0]})" if reason else "cannot be decoded"
    return ""


def _numbered_records(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yields the number, the first byte and the data of each record of a file."""
    start = 0
    for number, data in enumerate(records_of(path)):
        yield number, start, data
        start += HEAD_BYTES + len(data) + TAIL_BYTES


def _make_record_check(
    path: Path, image: str, label: str
) -> Callable[[tuple[int, int, bytes]], str]:
    # TensorFlow compares the checksums of a whole file much faster than those of single records.
    is_damaged = bool(find_damaged_record(path))

    def problem(record: tuple[int, int, bytes]) -> str:
        number, start, data = record
        reason = ""
        if is_damaged and not has_valid_checksum(path, start):
            reason = "the data do not match their checksum"
        reason = reason or example_problem(data, {image: "bytes", label: "int64"})
        reason = reason or _feature_problem(image, features_of(data)[image])
        return f"{path}: record {number} at byte {start}: {reason}" if reason else ""

    return problem


def _feature_problem(name: str, feature: bytes) -> str:
    problem = _image_problem(bytes_of(feature))
    return f"{name} {problem}" if problem else ""


if __name__ == "__main__":
    main()
