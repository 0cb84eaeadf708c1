"""Which rows of a table belong to which part, such as `train` and `validation`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from orbit_runner.data.order.keyed_random import mix
from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.tables.cell_texts import normal_text
from orbit_runner.data.tables.columns import CATEGORY, KEY, Column, TablePart
from orbit_runner.data.tables.hashing import hash_rows
from orbit_runner.errors import DataError, unknown_name_message

_SALT = 0x7061727473  # Makes the split independent of other uses of the hashes.


@dataclasses.dataclass(frozen=True)
class RowSplit:
    """How the rows of a table are split: by a column, or by a hash.

    Attributes:
        column: The column whose values are the names of the parts.
        fractions: The share of each part; empty if `column` is set.
        hash_of: The columns that are hashed.
        seed: Another seed gives other parts.
        is_stratified: Whether each part has its share of each class; only images have them.
    """

    column: str = ""
    fractions: tuple[tuple[str, float], ...] = ()
    hash_of: tuple[str, ...] = ()
    seed: int = 0
    is_stratified: bool = False

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """The columns that decide on the part of a row, each with its kind."""
        if self.column:
            return ((self.column, CATEGORY),)
        return tuple((name, KEY) for name in self.hash_of)


@cache_source(maxsize=8)
def part_of_table(table: TablePart, split: RowSplit | None, part: str) -> TablePart:
    """Returns the rows of a part, in order; those of all parts without `split`.

    `table` must have the columns that the split uses. Raises `DataError` if there are no rows.
    """
    if split is None:
        return table
    if split.column:
        return table.select(rows_with_value(_deciding(table, split.column), part))
    places = _positions(table, split.hash_of, split.seed)
    return table.select(rows_of_fraction(places, dict(split.fractions), part))


@cache_source(maxsize=2)
def _positions(table: TablePart, hash_of: tuple[str, ...], seed: int) -> np.ndarray:
    return positions(hash_rows(_deciding(table, name) for name in hash_of), seed)


def _deciding(table: TablePart, name: str) -> Column:
    return table.deciding.get(name) or table.columns[name]


def rows_with_value(column: Column, value: str) -> np.ndarray:
    """Returns the rows in which a category has a value, in order: int64 [k].

    Raises `DataError` if there is none.
    """
    value = normal_text(value)
    if value not in column.vocabulary:
        problem = unknown_name_message(
            f"value of column {column.name!r}:", value, column.vocabulary[:20]
        )
        raise DataError(problem, field="split", code="unknown-part")
    return np.flatnonzero(column.values == column.vocabulary.index(value))


def rows_of_fraction(places: np.ndarray, fractions: Mapping[str, float], part: str) -> np.ndarray:
    """Returns the rows of a part, in order: int64 [k].

    A row's hash determines its part, so that no row moves to another part when rows are added, and
    rows with equal hashes are in the same part.

    Args:
        places: The result of `positions`, float64 [n].
        fractions: The share of each part. Rows beyond their sum are in no part.
        part: The name of the part.

    Raises:
        DataError: There is no such part, or it has no rows.
    """
    if part not in fractions:
        raise DataError(
            unknown_name_message("part", part, list(fractions)), field="split", code="unknown-part"
        )
    names = list(fractions)
    bounds = np.cumsum([0.0, *fractions.values()])
    index = names.index(part)
    # The sum of all fractions may be slightly less than 1.
    end = np.inf if index == len(names) - 1 and bounds[-1] > 1 - 1e-9 else bounds[index + 1]
    rows = np.flatnonzero((places >= bounds[index]) & (places < end))
    if not len(rows):
        raise DataError(
            f"part {part!r} has no rows of {len(places):,}", field="split", code="empty-data"
        )
    return rows


def ranks(places: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Returns a number from 0 to 1 (excluded) for each example: its rank within its class.

    So each part gets its share of each class, rounded. Examples of a class with equal places have
    equal ranks.

    Args:
        places: The result of `positions`, float64 [n].
        classes: The class of each example, integers [n].

    Returns:
        float64 [n].
    """
    result = np.zeros(len(places))
    _, counts = np.unique(classes, return_counts=True)
    for rows in np.split(np.argsort(classes, kind="stable"), np.cumsum(counts)[:-1]):
        ordered = np.sort(places[rows])
        result[rows] = (np.searchsorted(ordered, places[rows]) + 0.5) / len(rows)
    return result


def positions(hashes: np.ndarray, seed: int) -> np.ndarray:
    """Returns a number from 0 to 1 (excluded) for each hash, uint64 [n]: float64 [n].

    Another seed gives other numbers.
    """
    key = mix(np.array([(seed ^ _SALT) % 2**64], np.uint64))
    return (mix(hashes ^ key) >> np.uint64(11)).astype(np.float64) * 2.0**-53
