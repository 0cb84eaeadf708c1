"""Lists of integers in the packed encoding of protocol buffers, decoded many at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from orbit_runner.data.text.source import Ragged

_INT64_LIST, _PACKED, _SINGLE = 0x1A, 0x0A, 0x08


class PackedRows:
    """Collects packed lists, to decode all of them at once."""

    def __init__(self) -> None:
        self._payload = bytearray()
        self._ends: list[int] = []

    def add(self, payload: bytes) -> None:
        """Adds a row of numbers that are encoded as varints."""
        self._payload += payload
        self._ends.append(len(self._payload))

    def rows(self) -> Ragged:
        """Returns all rows; numbers that do not fit in int32 become -1."""
        data = np.frombuffer(bytes(self._payload), np.uint8)
        # The top bit of the last byte of a number is 0.
        last = data < 0x80
        numbers = np.cumsum(last)
        ends = np.array(self._ends, np.int64)
        counts = np.where(ends > 0, numbers[ends - 1], 0) if len(data) else np.zeros_like(ends)
        offsets = np.concatenate([np.zeros(1, np.int64), counts])
        return Ragged(_decode_varints(data, np.flatnonzero(last)), offsets)


def _decode_varints(data: np.ndarray, lasts: np.ndarray) -> np.ndarray:
    firsts = np.concatenate([[0], lasts[:-1] + 1]) if len(lasts) else lasts
    lengths = lasts - firsts + 1
    values = np.zeros(len(lasts), np.int64)
    for place in range(min(5, int(lengths.max(initial=0)))):
        has = lengths > place
        values[has] |= (data[firsts[has] + place].astype(np.int64) & 0x7F) << (7 * place)
    return np.where((lengths > 5) | (values >= 2**31), -1, values).astype(np.int32)


def int64_list(feature: bytes) -> bytes:
    """Returns the integers of a serialized `tf.train.Feature` as packed varints.

    The message is defined in `tensorflow/core/example/feature.proto`. Raises ValueError if it is
    not a list of integers.
    """
    payload = b""
    rest = _read_body(feature, _INT64_LIST)
    while rest:
        if rest[0] == _SINGLE:
            size = _varint_size(rest[1:])
            payload = payload + rest[1 : 1 + size]
            rest = rest[1 + size :]
        else:
            size, start = _read_length(rest, _PACKED)
            payload = payload + rest[start : start + size]
            rest = rest[start + size :]
    if payload and payload[-1] >= 0x80:
        raise ValueError("a malformed integer list")
    return payload


def feature_of(numbers: Sequence[int] | np.ndarray) -> bytes:
    """Returns a serialized `tf.train.Feature` with a list of non-negative integers."""
    packed = b"".join(encode_varint(int(number)) for number in numbers)
    return _encode_field(_INT64_LIST, _encode_field(_PACKED, packed))


def example_of(features: dict[str, bytes]) -> bytes:
    """Returns a serialized tf.Example with serialized features, by name."""
    entries = [
        _encode_field(0x0A, _encode_field(0x0A, name.encode()) + _encode_field(0x12, feature))
        for name, feature in features.items()
    ]
    return _encode_field(0x0A, b"".join(entries))


def encode_varint(number: int) -> bytes:
    """Returns the varint of a non-negative integer: groups of seven bits, the lowest first."""
    groups = bytearray()
    while number >= 0x80:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])


def _encode_field(tag: int, payload: bytes) -> bytes:
    return bytes([tag]) + encode_varint(len(payload)) + payload


def _read_body(message: bytes, tag: int) -> bytes:
    size, start = _read_length(message, tag)
    if start + size != len(message):
        raise ValueError("a feature with several lists")
    return message[start:]


def _read_length(message: bytes, tag: int) -> tuple[int, int]:
    if not message or message[0] != tag:
        raise ValueError("a feature that is not an integer list")
    size = _varint_size(message[1:])
    length = sum((byte & 0x7F) << (7 * k) for k, byte in enumerate(message[1 : 1 + size]))
    if 1 + size + length > len(message):
        raise ValueError("a truncated feature")
    return length, 1 + size


def _varint_size(data: bytes) -> int:
    size = next((k + 1 for k, byte in enumerate(data[:10]) if byte < 0x80), 0)
    if not size:
        raise ValueError("a malformed integer list")
    return size
