"""Reads a tf.Example without TensorFlow, to check a file early."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping


def features_of(record: bytes) -> dict[str, bytes]:
    """Returns the serialized `tf.train.Feature` messages of a serialized tf.Example, by name.

    The messages are defined in `tensorflow/core/example/example.proto` and `feature.proto`. Raises
    ValueError if `record` is not such a message.
    """
    by_name = {}
    for features in iterate_fields(record, 1):
        for entry in iterate_fields(features, 1):
            name = b"".join(iterate_fields(entry, 1)).decode()
            by_name[name] = b"".join(iterate_fields(entry, 2))
    return by_name


def example_problem(record: bytes, expected: Mapping[str, str]) -> str:
    """Returns why a record is not a tf.Example with one value of each expected feature, or "".

    `expected` maps the name of each feature to its kind: `bytes`, `float` or `int64`.
    """
    words = " and ".join(f"{name} ({kind})" for name, kind in expected.items())
    try:
        features = features_of(record)
    except ValueError:
        return f"is not a tf.Example, expected one with {words}"
    for name, kind in expected.items():
        if name not in features:
            got = ", ".join(sorted(features)) or "(none)"
            return f"got features {got}, expected {words}"
        try:
            actual_kind, count = _count_values(features[name])
        except ValueError:
            return f"{name}: got a corrupted feature, expected one {kind} value"
        if (actual_kind, count) != (kind, 1):
            got = f"{count} × {actual_kind}" if count else "no value"
            return f"{name}: got {got}, expected one {kind} value"
    return ""


def _count_values(feature: bytes) -> tuple[str, int]:
    """Returns the kind of a feature's values and their number."""
    for number, kind in enumerate(("bytes", "float", "int64"), 1):
        for values in iterate_fields(feature, number):
            if kind == "bytes":
                return kind, sum(1 for _ in iterate_fields(values, 1))
            return kind, _count_numbers(values, kind)
    return "", 0


def _count_numbers(values: bytes, kind: str) -> int:
    """Returns the number of values in a FloatList or Int64List, packed or not."""
    count = 0
    for packed in iterate_fields(values, 1):
        count += len(packed) // 4 if kind == "float" else sum(byte < 0x80 for byte in packed)
    place = 0
    while place < len(values):
        tag, place = read_varint(values, place)
        if tag & 7 == 2:
            size, place = read_varint(values, place)
            place += size
        elif tag & 7 == 5:
            place = place + 4
            count = count + 1
        else:
            _, place = read_varint(values, place)
            count += 1
    return count


def bytes_of(feature: bytes) -> bytes:
    """Returns the first value of a feature's bytes list; raises ValueError if there is none."""
    for values in iterate_fields(feature, 1):
        for value in iterate_fields(values, 1):
            return value
    raise ValueError("no bytes")


def int_of(feature: bytes) -> int:
    """Returns the first value of a feature's int64 list; raises ValueError if there is none."""
    for values in iterate_fields(feature, 3):
        packed = next(iter(iterate_fields(values, 1)), b"") or values.removeprefix(b"\x08")
        if packed:
            value, _ = read_varint(packed, 0)
            return value - (value >> 63 << 64)
    raise ValueError("no integers")


def value_of(feature: bytes) -> bytes | float | int:
    """Returns the only value of a feature; raises ValueError if there is none or several."""
    kind, count = _count_values(feature)
    if count != 1:
        raise ValueError(f"got {count} values")
    if kind == "float":
        # The tag, and the length of packed values, come before the four bytes of the number.
        return float(struct.unpack("<f", next(iterate_fields(feature, 2))[-4:])[0])
    return bytes_of(feature) if kind == "bytes" else int_of(feature)


def iterate_fields(message: bytes, number: int) -> Iterator[bytes]:
    """Yields the length-delimited fields of a protocol buffer with the field number `number`."""
    place = 0
    while place < len(message):
        tag, place = read_varint(message, place)
        kind = tag & 7
        if kind == 0:
            _, place = read_varint(message, place)
            continue
        if kind == 2:
            size, place = read_varint(message, place)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError("bytes that are not a protocol buffer")
        if place + size > len(message):
            raise ValueError("bytes that are not a protocol buffer")
        if kind == 2 and tag >> 3 == number:
            yield message[place : place + size]
        place += size


def read_varint(message: bytes, place: int) -> tuple[int, int]:
    """Returns the integer of variable length at a place, and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            break
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise ValueError("bytes that are not a protocol buffer")
