"""Writes TFRecord files of token ids without TensorFlow."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from orbit_runner.data.text.packed_varints import example_of, feature_of
from orbit_runner.data.text.source import PairSource
from orbit_runner.data.tfrecord.framing import masked_crc32c
from orbit_runner.utils.cache import write_shared_file


def write_token_records(source: PairSource, path: str | Path) -> None:
    """Writes pairs to a file that `token_records` and Model Garden's pipelines can read.

    The file is written atomically, and its directory is created if necessary.
    """
    records = [
        example_of(
            {
                "inputs": feature_of(source.sources.row(number)),
                "targets": feature_of(source.targets.row(number)),
            }
        )
        for number in range(source.size)
    ]
    write_shared_file(Path(path), frame_records(records))


def frame_records(records: Sequence[bytes]) -> bytes:
    """Returns the content of a TFRecord file with these records."""
    heads = [struct.pack("<Q", len(record)) for record in records]
    return b"".join(
        head + check + record + tail
        for head, check, record, tail in zip(
            heads, _checksums(heads), records, _checksums(records), strict=True
        )
    )


def _checksums(parts: Sequence[bytes]) -> list[bytes]:
    """Returns the checksum of each part, computed for all parts of the same length at once."""
    by_length = defaultdict(list)
    for number, part in enumerate(parts):
        by_length[len(part)].append(number)
    checksums = np.zeros(len(parts), "<u4")
    for length, numbers in by_length.items():
        rows = np.frombuffer(b"".join(parts[number] for number in numbers), np.uint8)
        checksums[numbers] = masked_crc32c(rows.reshape(len(numbers), length))
    return [value.tobytes() for value in checksums]
