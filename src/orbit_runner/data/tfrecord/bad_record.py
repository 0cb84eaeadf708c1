"""Finds the record that ended a run, after it has.

TensorFlow does not say which record of which file it failed at. To know that while records are
read would slow every batch; so the files are read once more from the step at which training was.
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

from orbit_runner.data.tfrecord.example import example_problem
from orbit_runner.data.tfrecord.framing import (
    BLOCK_RECORDS,
    HEAD_BYTES,
    TAIL_BYTES,
    FileIndex,
    has_checksum,
    record_starts,
    scan,
)
from orbit_runner.data.tfrecord.order import BlockOrder
from orbit_runner.data.tfrecord.source import RecordSource
from orbit_runner.errors import DataError

_CHECKSUM = re.compile(r"(?:corrupted|truncated) record at (\d+)")
_NUMBERED = re.compile(r"(?P<file>.+): record (?P<record>\d+): (?P<rest>.+)", re.DOTALL)
# How TensorFlow names what did not parse, and what did not decode.
_UNPARSED, _UNDECODED = ("ParseExample", "Could not parse example"), ("DecodePng", "decode_png")
# So many records of each source first: the record is most probably near to where training was.
_NEARBY = 2**14


@dataclasses.dataclass(frozen=True)
class ReadingOrder:
    """The order in which a pipeline reads the blocks of a source.

    Attributes:
        seed: Seed of the order.
        shuffle: Whether blocks are shuffled.
        global_batch_size: Records per step; 0 in evaluation, which begins anew each time.
    """

    seed: int
    shuffle: bool
    global_batch_size: int


# What this process reads. Pipelines are made several times, so orders are a set.
_ORDERS: weakref.WeakKeyDictionary[RecordSource, set[ReadingOrder]] = weakref.WeakKeyDictionary()


def remember_order(source: RecordSource, order: ReadingOrder) -> None:
    """Remembers that a source is read.

    Args:
        source: The records.
        order: How a pipeline reads them.
    """
    # The newest source is the last one, and is looked at first.
    _ORDERS[source] = _ORDERS.pop(source, set()) | {order}


def find_bad_record(message: str, step: int) -> str:
    """Finds the record that an error of TensorFlow is about.

    Args:
        message: That of the error.
        step: The step at which training was.

    Returns:
        File, record, byte and what is wrong; "" if the error is not about a record.
    """
    checksum = _CHECKSUM.search(message)
    if checksum:
        sources = list(_ORDERS)[::-1]
        places = ((path, i) for s in sources for path, i in zip(s.files, s.indexes, strict=True))
        return _find_damaged_at(int(checksum[1]), places)
    if any(word in message for word in _UNPARSED):
        return _first_bad(step, _unlike_example)
    if any(word in message for word in _UNDECODED):
        return _first_bad(step, _undecodable)
    return ""


def with_offset(problem: str) -> str:
    """Adds the byte at which a record starts to a message that names file and record.

    Args:
        problem: Such as `train-00: record 3: got label 12`.

    Returns:
        Such as `train-00: record 3 at byte 1024: got label 12`; other messages as they are.
    """
    named = _NUMBERED.fullmatch(problem)
    if named is None:
        return problem
    try:
        starts = _starts(Path(named["file"]))
        offset = next(itertools.islice(starts, int(named["record"]), None))
    except (DataError, OSError, StopIteration):
        return problem
    return f"{named['file']}: record {named['record']} at byte {offset}: {named['rest']}"


def find_damaged_record(path: Path) -> str:
    """Reads a file and compares all checksums.

    Args:
        path: The file.

    Returns:
        Record, byte and what is wrong; "" if nothing is.

    Raises:
        DataError: The file cannot be read, or its frames are damaged.
    """
    records = tf.data.TFRecordDataset(os.fsencode(path), buffer_size=2**20)
    try:
        records.reduce(np.int64(0), lambda count, _: count + 1)
    except tf.errors.DataLossError as error:
        found = _CHECKSUM.search(str(error))
        place = _find_damaged_at(int(found[1]), [(path, scan(path))]) if found else ""
        return place or f"{path}: {error.message.splitlines()[0]}"
    return ""


def _find_damaged_at(offset: int, places: Iterable[tuple[Path, FileIndex]]) -> str:
    """Returns the record whose data start at a byte of some file and differ from their checksum."""
    start = offset - HEAD_BYTES
    for path, index in places:
        block = int(np.searchsorted(index.offsets, start, side="right")) - 1
        if not 0 <= block < len(index.offsets) - 1:
            continue
        try:
            starts = record_starts(path, int(index.offsets[block]))
        except DataError as error:
            return str(error)
        if start in starts[:-1] and not has_checksum(path, start):
            number = block * BLOCK_RECORDS + starts.index(start)
            return (
                f"{path}: record {number} at byte {start}: the data do not have the checksum that "
                "is stored with them; the file is damaged"
            )
    return ""


@dataclasses.dataclass(frozen=True)
class _Record:
    """A record and where it is."""

    path: Path
    number: int
    offset: int
    data: bytes


def _first_bad(step: int, problem: Callable[[RecordSource, bytes], str]) -> str:
    """Returns what is wrong with the first bad record, read as the pipelines read them."""
    for start, stop in ((0, _NEARBY), (_NEARBY, None)):
        for source, orders in list(_ORDERS.items())[::-1]:
            for order in orders:
                for record in itertools.islice(_records(source, order, step), start, stop):
                    found = problem(source, record.data)
                    if found:
                        place = f"{record.path}: record {record.number} at byte {record.offset}"
                        return f"{place}: {found}"
    return ""


def _records(source: RecordSource, order: ReadingOrder, step: int) -> Iterator[_Record]:
    """Yields all records of a source, from the block of a step on."""
    blocks = source.blocks
    epoch, place = divmod(step * order.global_batch_size, source.size)
    first = _row(source, order, epoch)
    passed = int(np.searchsorted(np.cumsum(blocks.records[first]), place, side="right"))
    # A window before it as well, for records are shuffled within windows.
    for block in [*first[max(0, passed - 1) :], *_row(source, order, epoch + 1)]:
        path, number = source.files[blocks.file[block]], int(blocks.place[block])
        starts = record_starts(path, int(blocks.offset[block]))[: int(blocks.records[block]) + 1]
        with path.open("rb") as file:
            file.seek(starts[0])
            content = file.read(starts[-1] - starts[0])
        for k, (begin, end) in enumerate(itertools.pairwise(starts)):
            data = content[begin - starts[0] + HEAD_BYTES : end - starts[0] - TAIL_BYTES]
            yield _Record(path, number + k, begin, data)


def _row(source: RecordSource, order: ReadingOrder, epoch: int) -> np.ndarray:
    row = BlockOrder(source.blocks.records, order.seed, shuffle=order.shuffle)
    return row(tf.constant(epoch, tf.int64))[0].numpy()


def _starts(path: Path) -> Iterator[int]:
    offset, size = 0, path.stat().st_size
    while offset < size:
        starts = record_starts(path, offset)
        yield from starts[:-1]
        offset = starts[-1]


def _unlike_example(source: RecordSource, data: bytes) -> str:
    return example_problem(data, {source.image_key: "bytes", source.label_key: "int64"})


def _undecodable(source: RecordSource, data: bytes) -> str:
    features = {source.image_key: tf.io.FixedLenFeature([], tf.string)}
    try:
        encoded = tf.io.parse_single_example(data, features)[source.image_key]
        tf.io.decode_png(encoded, channels=source.image_shape[2])
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError):
        return f"{source.image_key} does not decode; max_bad_images would leave it out"
    return ""
