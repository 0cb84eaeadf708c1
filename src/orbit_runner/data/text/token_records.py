"""Sentence pairs as token ids in TFRecord files, as written by Model Garden's old Transformer."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from orbit_runner.config.schema.data import input_paths
from orbit_runner.data.files import named_files
from orbit_runner.data.fingerprint import DataFile
from orbit_runner.data.text.dataset import FileRows, PairDataset
from orbit_runner.data.text.limits import limit_lengths
from orbit_runner.data.text.packed_varints import PackedRows, int64_list
from orbit_runner.data.text.source import EOS, PAD, PairSource, Ragged
from orbit_runner.data.text.token_cache import load_or_encode
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary
from orbit_runner.data.tfrecord.example import features_of
from orbit_runner.data.tfrecord.framing import (
    BLOCK_RECORDS,
    HEAD_BYTES,
    TAIL_BYTES,
    FileIndex,
    find_damaged_data,
    record_files,
    record_starts,
    unreadable_error,
)
from orbit_runner.data.tfrecord.index_cache import index_files
from orbit_runner.errors import DataError
from orbit_runner.utils.log import Progress

_NAME = "token_records"
SIDES = ("inputs", "targets")


class TokenRecords(PairDataset):
    """TFRecord files of token ids."""

    row = "RECORD"

    def options(self, vocab_size: int, vocabulary: Vocabulary | None) -> dict[str, object]:
        """Returns the arguments of `load`."""
        return {
            "split": self.section.split,
            "data_dir": self.section.data_dir,
            "input_path": input_paths(self.section),
            "vocab_size": vocab_size,
            "max_length": self.section.max_seq_length,
            "is_training": bool(self.section.is_training),
        }

    def data_files(self) -> list[DataFile]:
        """Returns descriptions of the files, with digests of their records."""
        files = self._files()
        return record_files(files, index_files(files))

    def places(self) -> list[list[FileRows]]:
        """Returns the files, which have both sides."""
        files = self._files()
        indexes = index_files(files)
        return [
            [FileRows(path, index.records, 0) for path, index in zip(files, indexes, strict=True)]
        ]

    def _files(self) -> list[Path]:
        return named_files(_NAME, self.section.data_dir, input_paths(self.section))


def load(
    *,
    split: str = "",
    data_dir: str = "",
    input_path: Sequence[str] = (),
    vocab_size: int,
    max_length: int,
    is_training: bool,
) -> PairSource:
    """Returns the pairs in TFRecord files of tf.Example with int64 lists `inputs` and `targets`.

    `input_path` is a list of uncompressed files or patterns, relative to `data_dir`. `split` must
    be empty, because the files determine what is read. Both lists must end with `EOS`. `vocab_size`
    is one more than the largest valid id. `max_length` and `is_training` are those of
    `parallel_text.load`. There are no references. Raises DataError if a file is missing or damaged,
    or if its contents are not as described.
    """
    if split:
        raise DataError(
            f"{_NAME}: got split {split!r}, expected none: input_path specifies the files",
            field="split",
            code="unknown-part",
        )
    files = named_files(_NAME, data_dir, input_path)
    if not files:
        raise DataError(
            f"{_NAME}: no files are specified; set input_path, for example to train-*",
            field="input_path",
            code="not-set",
        )
    indexes = index_files(files)
    if not any(index.records for index in indexes):
        raise DataError(
            f"{_NAME}: no records found (files: {len(files)}, such as {files[0]})",
            field="input_path",
            code="empty-data",
        )
    sources, targets = load_or_encode(_cache_key(files), lambda: _read_sides(files, indexes))
    for side, rows in zip(SIDES, (sources, targets), strict=True):
        _check_ids(side, rows, vocab_size, files, indexes)
    pairs = PairSource(f"{_NAME} {files[0].name}", sources, targets, vocab_size)
    return limit_lengths(pairs, max_length, is_training=is_training)


TokenRecords.reader = staticmethod(load)


def _cache_key(files: Sequence[Path]) -> list[list[object]]:
    stats = [(path.absolute(), path.stat()) for path in files]
    return [[os.fspath(path), stat.st_size, stat.st_mtime_ns] for path, stat in stats]


def _read_sides(files: Sequence[Path], indexes: Sequence[FileIndex]) -> list[Ragged]:
    sides = [PackedRows() for _ in SIDES]
    progress = Progress("reading records")
    done = 0
    for path, index in zip(files, indexes, strict=True):
        for number, (start, record) in enumerate(_read_records(path, index)):
            lists = _parse_lists(f"{path}: record {number} at byte {start}", record)
            for side, payload in zip(sides, lists, strict=True):
                side.add(payload)
        done += index.records
        progress(f"{done:,} of {sum(index.records for index in indexes):,}")
    return [side.rows() for side in sides]


def _read_records(path: Path, index: FileIndex) -> Iterator[tuple[int, bytes]]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise unreadable_error(path, error) from None
    if len(content) != index.offsets[-1]:
        raise DataError(
            f"{path}: has changed since its records were counted",
            field="input_path",
            code="data-changed",
        )
    starts = [0]
    while starts[-1] < len(content):
        length = int.from_bytes(content[starts[-1] : starts[-1] + 8], "little")
        starts.append(starts[-1] + HEAD_BYTES + length + TAIL_BYTES)
    damaged = find_damaged_data(content, starts)
    if damaged is not None:
        raise DataError(
            f"{path}: record {damaged} at byte {starts[damaged]}: the data do not match their "
            "checksum; the file is corrupted",
            field="input_path",
            code="bad-record",
        )
    for start, end in itertools.pairwise(starts):
        yield start, content[start + HEAD_BYTES : end - TAIL_BYTES]


def _parse_lists(place: str, record: bytes) -> list[bytes]:
    try:
        features = features_of(record)
        return [int64_list(features[side]) for side in SIDES]
    except KeyError:
        got = f"features {', '.join(sorted(features)) or '(none)'}"
    except ValueError as error:
        got = str(error)
    raise DataError(
        f"{place}: got {got}, expected a tf.Example with the int64 lists {' and '.join(SIDES)}",
        field="input_path",
        code="bad-record",
    )


def _check_ids(
    side: str, rows: Ragged, vocab_size: int, files: Sequence[Path], indexes: Sequence[FileIndex]
) -> None:
    """Raises DataError if an id is not in the vocabulary or a row does not end with `EOS`."""
    wrong = (rows.values <= PAD) | (rows.values >= vocab_size)
    if wrong.any():
        place = int(np.argmax(wrong))
        row = int(np.searchsorted(rows.offsets, place, side="right")) - 1
        raise DataError(
            f"{_record_location(row, files, indexes)}: {side}: got id {rows.values[place]}, "
            f"expected {EOS} to {vocab_size - 1}",
            field="vocab_size" if rows.values[place] > PAD else "input_path",
            code="bad-record",
        )
    ends = np.zeros(rows.size, bool)
    filled = rows.lengths > 0
    ends[filled] = rows.values[rows.offsets[1:][filled] - 1] == EOS
    if not ends.all():
        row = int(np.argmin(ends))
        raise DataError(
            f"{_record_location(row, files, indexes)}: {side}: got a list that does not end with "
            f"{EOS}, the end-of-sentence id",
            field="input_path",
            code="bad-record",
        )


def _record_location(row: int, files: Sequence[Path], indexes: Sequence[FileIndex]) -> str:
    ends = list(itertools.accumulate(index.records for index in indexes))
    file = next(k for k, end in enumerate(ends) if row < end)
    number = row - ends[file] + indexes[file].records
    block, place = divmod(number, BLOCK_RECORDS)
    start = record_starts(files[file], int(indexes[file].offsets[block]))[place]
    return f"{files[file]}: record {number} at byte {start}"
