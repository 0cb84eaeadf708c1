"""Hashes of rows, which depend only on the cells: the same in each process, task and format.

They determine the part that a row belongs to, and find equal rows. They are not cryptographic.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from orbit_runner.data.order.keyed_random import GOLDEN, mix
from orbit_runner.data.tables.cell_texts import normal_text, parse_date, parse_number
from orbit_runner.data.tables.columns import CATEGORY, DATE, NUMBER, Column, date_text

_GOLDEN = np.uint64(GOLDEN)
_NAN_BITS = np.uint64(0x7FC00000)
_BLOCK_ROWS = 2**14
_MOST_NUMBER_CHARACTERS = 400
_NUMBER_WORDS = ("true", "false", "nan")


def hash_texts(texts: Sequence[str]) -> np.ndarray:
    """Returns a hash of the UTF-8 bytes of each text: uint64 [n].

    It is the sum of one mixed value for each byte and its position, mixed with the length.
    """
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    lengths = np.fromiter((len(text) for text in encoded), np.int64, len(encoded))
    ends = np.cumsum(lengths)
    starts = ends - lengths
    data = np.frombuffer(b"".join(encoded), np.uint8).astype(np.uint64)
    places = np.arange(len(data), dtype=np.int64) - np.repeat(starts, lengths)
    sums = np.concatenate(
        [np.zeros(1, np.uint64), np.cumsum(mix(places.astype(np.uint64) * np.uint64(256) + data))]
    )
    return mix((sums[ends] - sums[starts]) + (lengths + 1).astype(np.uint64) * _GOLDEN)


def hash_rows(columns: Iterable[Column], *, exact: bool = False) -> np.ndarray:
    """Returns a hash of each row of some columns, uint64 [n], independent of their order.

    It does not depend on the kind of a column, which each task chooses: a number has the same hash
    in a column of numbers, of categories and of texts, and so has a date, or a missing value. Only
    a key has another hash. With `exact`, it depends on the kind, so that different categories have
    different hashes even if they are the same number in float32, such as `007` and `7`.
    """
    ordered = sorted(columns, key=lambda column: column.name)
    if not ordered:
        raise ValueError("`columns` is empty.")
    text_bits, missing = (hash_texts, _GOLDEN) if exact else (_cell_bits, _NAN_BITS)
    state = np.zeros(len(ordered[0].values), np.uint64)
    for column in ordered:
        # Short blocks stay in the processor's cache, which makes this several times as fast.
        read = _bits_reader(column, text_bits, missing)
        for start in range(0, len(state), _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            state[rows] = mix((state[rows] ^ read(rows)) + _GOLDEN)
    return state


def value_bits(column: Column) -> np.ndarray:
    """Returns 64 bits for each value of a column, uint64 [n], different for different values.

    Missing values are equal. The bits of numbers are not mixed, and those of texts are hashes.
    """
    return _bits_reader(column, hash_texts, _GOLDEN)(slice(None))


def _bits_reader(
    column: Column, text_bits: Callable[[Sequence[str]], np.ndarray], missing: np.uint64
) -> Callable[[slice], np.ndarray]:
    """Returns what reads the bits of some rows.

    `text_bits` returns those of texts. `missing` are those of a category or date that is missing.
    """
    if column.kind == CATEGORY:
        # The last entry is for missing values, whose code is -1.
        hashes = np.append(text_bits(column.vocabulary), missing)
        return lambda rows: hashes[column.values[rows]]
    if column.kind == NUMBER:
        return lambda rows: _number_bits(column.values[rows])
    if column.kind == DATE:
        seconds, codes = np.unique(column.values, return_inverse=True)
        texts = text_bits([normal_text(date_text(int(second))) for second in seconds])
        bits = np.where(column.is_missing(), missing, texts[codes])
        return lambda rows: bits[rows]
    return lambda rows: column.values[rows]


def _cell_bits(texts: Sequence[str]) -> np.ndarray:
    """Returns the bits of cells: those of the number if a text is one, else those of its form."""
    bits = hash_texts([_cell_form(text) for text in texts])
    parsed = ((row, _number_in(text)) for row, text in enumerate(texts))
    numbers = {row: number for row, number in parsed if number is not None}
    if numbers:
        with np.errstate(over="ignore"):
            values = np.array([*numbers.values()]).astype(np.float32)
        bits[[*numbers]] = _number_bits(values)
    return bits


def _cell_form(text: str) -> str:
    """Returns the form in which a text is hashed; of a date, that of a column of dates."""
    if text[:1].isdigit():
        with contextlib.suppress(ValueError):
            return normal_text(date_text(parse_date(text)))
    return normal_text(text)


def _number_in(text: str) -> float | None:
    """Returns the number in a text, None if it is no number."""
    first = text[:1]
    # Most texts are words, for each of which an exception would take several times as long.
    may_be_number = first.isdigit() or first in "+-." or text.lower() in _NUMBER_WORDS
    if not may_be_number or len(text) > _MOST_NUMBER_CHARACTERS:
        return None
    try:
        return parse_number(text)
    except ValueError:
        return None


def _number_bits(values: np.ndarray) -> np.ndarray:
    # -0.0 + 0.0 is 0.0, so that both zeros have the same bits.
    bits = (values + np.float32(0)).view(np.uint32).astype(np.uint64)
    bits[np.isnan(values)] = _NAN_BITS
    return bits
