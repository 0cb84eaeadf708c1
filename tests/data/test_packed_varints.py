"""Integers in the encoding of protocol buffers, whose numbers have one to ten bytes."""

from __future__ import annotations

import pytest

from orbit_runner.data.text.packed_varints import (
    PackedRows,
    encode_varint,
    feature_of,
    int64_list,
)

LARGEST = 2**31 - 1


def decode(*rows: list[int]) -> list[list[int]]:
    """Returns rows after they were encoded and decoded."""
    packed = PackedRows()
    for row in rows:
        packed.add(int64_list(feature_of(row)))
    decoded = packed.rows()
    return [decoded.row(index).tolist() for index in range(len(rows))]


@pytest.mark.parametrize(
    "rows",
    [
        [[0, 1, 127, 128, 129, 16_383, 16_384, 2**21, 2**28, LARGEST]],
        [[300], [], [5, 300], [1]],
        [[5], [6, 7]],
        [[number * 99 for number in range(300)]],
        [[], [2**14, 2**7]],
        [[], []],
    ],
    ids=["all sizes", "empty rows", "one byte", "long", "empty first", "all empty"],
)
def test_rows_are_what_was_encoded(rows: list[list[int]]) -> None:
    assert decode(*rows) == rows


@pytest.mark.parametrize("number", [LARGEST + 1, 2**35, 2**40, 2**63])
def test_number_that_does_not_fit_becomes_minus_one(number: int) -> None:
    assert decode([1, number, 300]) == [[1, -1, 300]]


def test_numbers_may_be_stored_one_by_one() -> None:
    values = b"".join(b"\x08" + encode_varint(number) for number in (1, 300, 70_000))
    feature = b"\x1a" + encode_varint(len(values)) + values
    packed = PackedRows()
    packed.add(int64_list(feature))

    assert packed.rows().row(0).tolist() == [1, 300, 70_000]


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        (b"", "not an integer list"),
        (b"\x12\x00", "not an integer list"),
        (feature_of([1, 2])[:-1], "truncated"),
        (feature_of([1]) + feature_of([1]), "several lists"),
        (b"\x1a\x03\x0a\x01\x80", "malformed"),
        (b"\x1a\x0c\x08" + b"\x80" * 11, "malformed"),
        (b"\x1a\x0c\x08" + b"\x80" * 10 + b"\x01", "malformed"),
    ],
)
def test_other_contents_are_an_error(feature: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        int64_list(feature)
