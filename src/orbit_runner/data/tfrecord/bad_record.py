"""Finds the record that made a run fail, after the failure.

TensorFlow does not report which record of which file caused an error. Keeping track of this while
records are read would slow down every batch. So the files are read again, from the step that
training had reached.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

from orbit_runner.data.order.records import BlockOrder
from orbit_runner.data.tfrecord.example import example_problem
from orbit_runner.data.tfrecord.framing import (
    BLOCK_RECORDS,
    HEAD_BYTES,
    TAIL_BYTES,
    FileIndex,
    has_valid_checksum,
    record_starts,
    scan,
)
from orbit_runner.data.tfrecord.source import RecordSource
from orbit_runner.errors import DataError

_CHECKSUM = re.compile(r"(?:corrupted|truncated) record at (\d+)")
_NAMED_RECORD = re.compile(r"(?P<file>.+): record (?P<record>\d+): (?P<rest>.+)", re.DOTALL)
# Parts of TensorFlow's messages about records that cannot be parsed, and images that cannot be
# decoded.
_PARSE_ERRORS, _DECODE_ERRORS = (
    ("ParseExample", "Could not parse example"),
    ("DecodePng", "decode_png"),
)
# Records of each source to check first: the bad record is probably near the current step.
_FIRST_RECORDS = 2**14


@dataclasses.dataclass(frozen=True)
class ReadingOrder:
    """The order in which a pipeline reads the blocks of a source."""

    seed: int
    shuffle: bool
    global_batch_size: int  # 0 in evaluation, which starts at the first record each time.
    excluded: frozenset[int] = frozenset()  # Records that are left out.


# The sources that this process reads. A pipeline may be built several times, so orders are a set.
_ORDERS: weakref.WeakKeyDictionary[RecordSource, set[ReadingOrder]] = weakref.WeakKeyDictionary()


def remember_order(source: RecordSource, order: ReadingOrder) -> None:
    """Stores a source and the order in which a pipeline reads it, for `find_bad_record`."""
    # The newest source comes last, and is searched first.
    _ORDERS[source] = _ORDERS.pop(source, set()) | {order}


def find_bad_record(message: str, step: int) -> str:
    """Returns the file, record, byte and problem of the record that a TensorFlow error is about.

    Returns "" if the error is not about a record, or if the record is not found. `step` is the step
    that training had reached.
    """
    checksum = _CHECKSUM.search(message)
    if checksum:
        sources = list(_ORDERS)[::-1]
        places = ((path, i) for s in sources for path, i in zip(s.files, s.indexes, strict=True))
        return _find_damage(int(checksum[1]), places)
    if any(word in message for word in _PARSE_ERRORS):
        return _find_first_bad(step, _example_problem)
    if any(word in message for word in _DECODE_ERRORS):
        return _find_first_bad(step, _decode_problem)
    return ""


def add_offset(problem: str) -> str:
    """Returns a message that names a file and a record, with the byte at which the record starts.

    For example, `train-00: record 3: got label 12` becomes `train-00: record 3 at byte 1024: got
    label 12`. Other messages are returned unchanged.
    """
    named = _NAMED_RECORD.fullmatch(problem)
    if named is None:
        return problem
    try:
        starts = _all_record_starts(Path(named["file"]))
        offset = next(itertools.islice(starts, int(named["record"]), None))
    except (DataError, OSError, StopIteration):
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
        match = _CHECKSUM.search(str(error))
        place = _find_damage(int(match[1]), [(path, scan(path))]) if match else ""
        return place or f"{path}: {error.message.splitlines()[0]}"
    return ""


def _find_damage(offset: int, places: Iterable[tuple[Path, FileIndex]]) -> str:
    """Returns the record whose data start at `offset` in a file and do not match their checksum."""
    start = offset - HEAD_BYTES
    for path, index in places:
        block = int(np.searchsorted(index.offsets, start, side="right")) - 1
        if not 0 <= block < len(index.offsets) - 1:
            continue
        try:
            starts = record_starts(path, int(index.offsets[block]))
        except DataError as error:
            return str(error)
        if start in starts[:-1] and not has_valid_checksum(path, start):
            number = block * BLOCK_RECORDS + starts.index(start)
            return (
                f"{path}: record {number} at byte {start}: the data do not match their checksum; "
                "the file is corrupted"
            )
    return ""


@dataclasses.dataclass(frozen=True)
class _Record:
    path: Path
    number: int
    offset: int
    data: bytes


def _find_first_bad(step: int, problem: Callable[[RecordSource, bytes], str]) -> str:
    """Returns the problem of the first bad record, in the order in which the pipelines read."""
    for start, stop in ((0, _FIRST_RECORDS), (_FIRST_RECORDS, None)):
        for source, orders in list(_ORDERS.items())[::-1]:
            for order in orders:
                for record in itertools.islice(_records(source, order, step), start, stop):
                    reason = problem(source, record.data)
                    if reason:
                        place = f"{record.path}: record {record.number} at byte {record.offset}"
                        return f"{place}: {reason}"
    return ""


def _records(source: RecordSource, order: ReadingOrder, step: int) -> Iterator[_Record]:
    """Yields the records of a source, from the block of a step to the end of the next epoch."""
    blocks = source.blocks
    # Records that are left out come in addition, so the step is at this place or a later one.
    epoch, place = divmod(step * order.global_batch_size, source.size - len(order.excluded))
    first = _epoch_blocks(source, order, epoch)
    passed = int(np.searchsorted(np.cumsum(blocks.records[first]), place, side="right"))
    # The block before it is included, because records are shuffled within windows.
    for block in [*first[max(0, passed - 1) :], *_epoch_blocks(source, order, epoch + 1)]:
        path, number = source.files[blocks.file[block]], int(blocks.place[block])
        starts = record_starts(path, int(blocks.offset[block]))[: int(blocks.records[block]) + 1]
        with path.open("rb") as file:
            file.seek(starts[0])
            content = file.read(starts[-1] - starts[0])
        for k, (begin, end) in enumerate(itertools.pairwise(starts)):
            if int(blocks.first[block]) + k in order.excluded:
                continue
            data = content[begin - starts[0] + HEAD_BYTES : end - starts[0] - TAIL_BYTES]
            yield _Record(path, number + k, begin, data)


def _epoch_blocks(source: RecordSource, order: ReadingOrder, epoch: int) -> np.ndarray:
    blocks, _ = BlockOrder(source.blocks.records, order.seed, shuffle=order.shuffle)(epoch)
    return blocks


def _all_record_starts(path: Path) -> Iterator[int]:
    offset = 0
    size = path.stat().st_size
    while offset < size:
        starts = record_starts(path, offset)
        yield from starts[:-1]
        offset = starts[-1]


def _example_problem(source: RecordSource, data: bytes) -> str:
    return example_problem(data, {source.image_key: "bytes", source.label_key: "int64"})


def _decode_problem(source: RecordSource, data: bytes) -> str:
    features = {source.image_key: tf.io.FixedLenFeature([], tf.string)}
    try:
        encoded = tf.io.parse_single_example(data, features)[source.image_key]
        tf.io.decode_png(encoded, channels=source.image_shape[2])
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError):
        return f"{source.image_key} cannot be decoded; set max_bad_images to skip it"
    return ""
