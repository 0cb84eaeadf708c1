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
from typing import Any, TypeVar

import tensorflow as tf

from orbit_runner.data.bad_records.result_cache import CANNOT_BE_READ
from orbit_runner.data.images.decode import decode_window
from orbit_runner.data.tfrecord.bad_record import find_damaged_record
from orbit_runner.data.tfrecord.example import bytes_of, example_problem, features_of
from orbit_runner.data.tfrecord.framing import HEAD_BYTES, TAIL_BYTES, has_checksum, records_of

_T = TypeVar("_T")
_AT_ONCE = 256
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
            _print_problems(pool, request["images"], _problem_of_file, 0)
        for name in request.get("records", ()):
            path = Path(name)
            check = _record_check(path, request["image"], request["label"])
            first = _print_problems(pool, _records(path), check, first)


def _print_problems(
    pool: ThreadPoolExecutor, items: Iterable[_T], check: Callable[[_T], str], first: int
) -> int:
    """Prints the problems of items, which are numbered from `first`; returns the next number."""
    left = iter(items)
    while chunk := list(itertools.islice(left, _AT_ONCE)):
        problems = enumerate(pool.map(check, chunk), first)
        first += len(chunk)
        _say(first, [(number, problem) for number, problem in problems if problem])
    return first


def _say(done: int, bad: Sequence[tuple[int, str]]) -> None:
    print(json.dumps({"done": done, "bad": bad}), flush=True)


def _problem_of_file(path: str) -> str:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        return f"{path}: {CANNOT_BE_READ} ({error.strerror})"
    problem = _problem_of_image(content)
    return f"{path}: {problem}" if problem else ""


def _problem_of_image(encoded: bytes) -> str:
    try:
        decode_window(tf.constant(encoded), _CHANNELS)
    except (tf.errors.OpError, ValueError) as error:
        said = error.message if isinstance(error, tf.errors.OpError) else str(error)
        reason = _OP.sub("", said).strip().splitlines()
        return f"cannot be decoded ({reason[0]})" if reason else "cannot be decoded"
    return ""


def _records(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yields the number, the first byte and the data of each record of a file."""
    start = 0
    for number, data in enumerate(records_of(path)):
        yield number, start, data
        start += HEAD_BYTES + len(data) + TAIL_BYTES


def _record_check(path: Path, image: str, label: str) -> Callable[[tuple[int, int, bytes]], str]:
    # TensorFlow compares the checksums of a whole file much faster than those of single records.
    is_damaged = bool(find_damaged_record(path))

    def problem(record: tuple[int, int, bytes]) -> str:
        number, start, data = record
        found = ""
        if is_damaged and not has_checksum(path, start):
            found = "the data do not match their checksum"
        found = found or example_problem(data, {image: "bytes", label: "int64"})
        found = found or _problem_of_feature(image, features_of(data)[image])
        return f"{path}: record {number} at byte {start}: {found}" if found else ""

    return problem


def _problem_of_feature(name: str, feature: Any) -> str:
    problem = _problem_of_image(bytes_of(feature))
    return f"{name} {problem}" if problem else ""


if __name__ == "__main__":
    main()
