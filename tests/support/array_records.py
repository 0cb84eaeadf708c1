"""Writes ArrayRecord files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from array_record.python.array_record_module import ArrayRecordWriter


def write_array_file(path: Path, records: Sequence[bytes], group_size: int = 1) -> Path:
    """Writes one file."""
    writer = ArrayRecordWriter(str(path), f"group_size:{group_size}")
    for record in records:
        writer.write(record)
    writer.close()
    return path
