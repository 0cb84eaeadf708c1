"""Finds the record that made a run fail, after the failure.

TensorFlow does not report which record of which file caused an error. Keeping track of this while
records are read would slow down every batch. So the files are read again.
"""

from __future__ import annotations

import os
import re
import weakref
from pathlib import Path

import numpy as np
import tensorflow as tf

from orbit_runner.data.order.epochs import NO_EXAMPLES
from orbit_runner.data.tfrecord.framing import HEAD_BYTES, index_file
from orbit_runner.data.tfrecord.source import RecordImages
from orbit_runner.errors import DataError
from orbit_runner.utils.log import phase

_CHECKSUM = re.compile(r"(?:corrupted|truncated) record at (\d+)")
_NAMED_RECORD = re.compile(r"(?P<file>.+): record (?P<record>\d+): (?P<rest>.+)", re.DOTALL)
# Parts of TensorFlow's messages about records that cannot be parsed, and images that cannot be
# decoded.
_RECORD_ERRORS = ("ParseExample", "Could not parse example", "DecodePng", "decode_png")
# The sources that this process reads, and the records that are left out. A pipeline may be built
# several times.
_READ: weakref.WeakKeyDictionary[RecordImages, frozenset[int]] = weakref.WeakKeyDictionary()


def remember_source(source: RecordImages, excluded: np.ndarray = NO_EXAMPLES) -> None:
    """Stores a source that a pipeline reads without the excluded records, for `find_bad_record`."""
    left_out = frozenset(excluded.tolist())
    # The newest source comes last, and is searched first.
    _READ[source] = _READ.pop(source, left_out) & left_out


def find_bad_record(message: str) -> str:
    """Returns the file, record, byte and problem of the record that a TensorFlow error is about.

    Returns "" if the error is not about a record, or if the record is not found.
    """
    if _CHECKSUM.search(message):
        return _find_first_damage()
    return _find_first_bad() if any(word in message for word in _RECORD_ERRORS) else ""


def add_offset(problem: str) -> str:
    """Returns a message that names a file and a record, with the byte at which the record starts.

    For example, `train-00: record 3: got label 12` becomes `train-00: record 3 at byte 1024: got
    label 12`. Other messages are returned unchanged.
    """
    named = _NAMED_RECORD.fullmatch(problem)
    if named is None:
        return problem
    try:
        offset = index_file(Path(named["file"])).offsets[int(named["record"])]
    except (DataError, IndexError):
        return problem
    return f"{named['file']}: record {named['record']} at byte {offset}: {named['rest']}"


def find_damaged_record(path: Path) -> str:
    """Returns the record, byte and problem of the first damaged record of a file, or "".

    Reads the whole file and compares all checksums. Raises DataError if the frames of the file are
    damaged.
    """
    records = tf.data.TFRecordDataset(os.fsencode(path), buffer_size=2**20)
    try:
        records.reduce(np.int64(0), lambda count, _: count + 1)
    except tf.errors.DataLossError as error:
        offsets = index_file(path).offsets
        match = _CHECKSUM.search(str(error))
        start = int(match[1]) - HEAD_BYTES if match else -1
        number = int(np.searchsorted(offsets, start))
        if number == len(offsets) or offsets[number] != start:
            return f"{path}: {error.message.splitlines()[0]}"
        return (
            f"{path}: record {number} at byte {start}: the data do not match their checksum; the "
            "file is corrupted"
        )
    return ""


def _find_first_damage() -> str:
    """Returns the problem of the first damaged record of the newest source that has one."""
    phase("looking for the damaged record")
    paths = (path for source in list(_READ)[::-1] for path in source.files)
    try:
        return next(filter(None, map(find_damaged_record, paths)), "")
    except DataError as error:
        return str(error)


def _find_first_bad() -> str:
    """Returns the problem of the first bad record of the newest source that has one."""
    phase("looking for the bad record")
    for source, excluded in list(_READ.items())[::-1]:
        for number, record in enumerate(source.records(range(source.size))):
            reason = "" if number in excluded else _problem(source, record)
            if reason:
                offset = source.place(number)["offset"]
                return f"{source.location(number)} at byte {offset}: {reason}"
    return ""


def _problem(source: RecordImages, data: bytes) -> str:
    problem = source.problem(data)
    if not problem:
        try:
            tf.io.decode_png(source.image(data), channels=source.image_shape[2])
        except tf.errors.InvalidArgumentError:
            advice = "set max_bad_images of its section to skip it"
            problem = f"{source.image_key} cannot be decoded; {advice}"
    return problem
