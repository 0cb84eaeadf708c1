"""Synthetic tables, to measure speed without data."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.tables.array_tables import ArrayTable
from orbit_runner.data.tables.columns import CATEGORY, DATE, NUMBER, TEXT
from orbit_runner.data.tables.dataset import TableDataset, TableOptions, TableUse

if TYPE_CHECKING:
    from orbit_runner.config.schema.data import DataConfig

# Without features in the config.
_FEATURES = (*((f"x{number}", NUMBER) for number in range(8)), ("c0", CATEGORY), ("c1", CATEGORY))
_WORDS = np.array([f"word{number}" for number in range(100)])
_DAYS = 7305  # twenty years
_TEXT_LENGTH = 8
_FEW = 5  # categories of a column


class RandomTable(ArrayTable):
    """A table of random columns with the names that the config asks for.

    Another seed gives other values, and so does another section. Without features in the config,
    there are 8 numbers and 2 categories. Numbers are from 0 to 1, a date is one of twenty years,
    a category is one of 5, and a text has 8 words.
    """

    name = "synthetic"

    @classmethod
    def of_section(cls, data: DataConfig, options: TableOptions, use: TableUse) -> TableDataset:
        """Returns the table of a section, which is drawn once per process."""
        part = "train" if data.is_training else "validation"
        return _draw(data.synthetic.num_examples, data.synthetic.kind, data.seed or 0, part, use)


@cache_source(maxsize=8)
def _draw(num_examples: int, kind: str, seed: int, part: str, use: TableUse) -> RandomTable:
    """Returns a table of random rows, or of equal rows if `kind` is `constant`."""
    kinds = dict(use.kinds if use.has_features else (*_FEATURES, *use.kinds))
    known = dict(_FEATURES)
    kinds = {name: kind or known.get(name, CATEGORY) for name, kind in kinds.items()}

    def random(name: str) -> np.random.Generator:
        entropy = (seed % 2**64, zlib.crc32(part.encode()), zlib.crc32(name.encode()))
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
    return RandomTable([("synthetic", columns)])
