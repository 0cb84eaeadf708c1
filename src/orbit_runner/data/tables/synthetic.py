"""Synthetic tables, to measure speed without data."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from orbit_runner.data.tables.array_tables import array_table
from orbit_runner.data.tables.columns import CATEGORY, DATE, NUMBER, TEXT
from orbit_runner.data.tables.dataset import TableDataset, TableOptions, TableReader, TableUse

if TYPE_CHECKING:
    from orbit_runner.config.schema.data import DataConfig

# Without features in the config.
_FEATURES = (*((f"x{number}", NUMBER) for number in range(8)), ("c0", CATEGORY), ("c1", CATEGORY))
_WORDS = np.array([f"word{number}" for number in range(100)])
_DAYS = 7305  # twenty years
_TEXT_LENGTH = 8
_FEW = 5  # categories of a column


def load(
    *, num_examples: int, kind: str, seed: int, is_training: bool, use: TableUse
) -> TableDataset:
    """Returns a table of random columns with the names that the config asks for.

    Another seed gives other values, and so does another section. Without features in the config,
    there are 8 numbers and 2 categories. Numbers are from 0 to 1, a date is one of twenty years,
    a category is one of 5, and a text has 8 words. If `kind` is `constant`, all rows are equal.
    """
    kinds = dict(use.kinds if use.has_features else (*_FEATURES, *use.kinds))
    known = dict(_FEATURES)
    kinds = {name: kind or known.get(name, CATEGORY) for name, kind in kinds.items()}

    def random(name: str) -> np.random.Generator:
        part = b"train" if is_training else b"validation"
        entropy = (seed % 2**64, zlib.crc32(part), zlib.crc32(name.encode()))
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy)))

    columns: dict[str, np.ndarray] = {}
    for name, column_kind in kinds.items():
        if column_kind == NUMBER:  # Not negative, because it may be a weight.
            columns[name] = random(name).random(num_examples, np.float32)
        elif column_kind == DATE:
            days = random(name).integers(0, _DAYS, num_examples)
            columns[name] = np.datetime64("2000-01-01") + days
        else:
            most, length = (len(_WORDS), _TEXT_LENGTH) if column_kind == TEXT else (_FEW, 1)
            words = _WORDS[random(name).integers(0, most, (num_examples, length))]
            columns[name] = np.array([" ".join(row) for row in words])
    if kind == "constant":
        columns = {name: np.repeat(array[:1], num_examples) for name, array in columns.items()}
    return array_table("synthetic", [("synthetic", columns)])


def _arguments(data: DataConfig, options: TableOptions, use: TableUse) -> dict[str, Any]:
    return {
        "num_examples": data.synthetic.num_examples,
        "kind": data.synthetic.kind,
        "seed": data.seed or 0,
        "is_training": bool(data.is_training),
        "use": use,
    }


SYNTHETIC = TableReader(load, _arguments)
