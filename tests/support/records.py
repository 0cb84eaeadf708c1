"""Encodes tf.Examples and TFRecord files without TensorFlow."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from orbit_runner.data.tfrecord.example import example_class


def example_of(**features: Sequence[bytes] | Sequence[float] | Sequence[int]) -> bytes:
    """Returns a serialized tf.Example; a name with `__` stands for one with slashes."""
    example = example_class()()
    for name, values in features.items():
        kinds = {bytes: "bytes_list", float: "float_list", int: "int64_list"}
        feature = example.features.feature[name.replace("__", "/")]
        getattr(feature, kinds[type(values[0])]).value.extend(values)
    return bytes(example.SerializeToString(deterministic=True))


def frame_records(records: Sequence[bytes]) -> bytes:
    """Returns the content of a TFRecord file with these records."""
    content = b""
    for record in records:
        head = struct.pack("<Q", len(record))
        content += head + _checksum(head) + record + _checksum(record)
    return content


def write_record_file(path: Path, records: Sequence[bytes]) -> None:
    """Writes a TFRecord file."""
    path.write_bytes(frame_records(records))


def _checksum(data: bytes) -> bytes:
    """Returns CRC-32C (RFC 3720), rotated and with a constant added."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc = ~crc & 0xFFFFFFFF
    rotated = crc >> 15 | crc << 17
    return struct.pack("<I", (rotated + 0xA282EAD8) & 0xFFFFFFFF)
