"""Synthetic tables, whose targets depend on the features, for benchmarks and experiments."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.tables.array_tables import ArrayTable
from orbit_runner.data.tables.columns import CATEGORY
from orbit_runner.data.tables.dataset import TableDataset, TableOptions, TableUse

if TYPE_CHECKING:
    from orbit_runner.config.schema.data import DataConfig

_NUMERIC = tuple(f"x{number}" for number in range(8))
_CATEGORICAL = ("c0", "c1")
_WORDS = np.array([f"word{number}" for number in range(100)])
_DAYS = 7305  # twenty years
_TEXT_WORDS = (3, 12)
_TEXTS = np.array(["a", "b", "c", "d", "e"])
_CLASSES = np.array(["no", "yes"])


class RandomTable(ArrayTable):
    """A table of random columns with the names that the config asks for.

    Another seed gives other features, and so does another section, but the targets depend on them
    in the same way. Without features in the config, there are 8 numbers and 2 categories. A numeric
    feature has normal numbers, a date is one of twenty years, a categorical feature has 5 texts,
    and one of texts 3 to 12 words out of 100. A target that is a number is a linear function of the
    features with some noise; a category is `yes` or `no`, depending on such a number. The weights
    are ones.
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
    numeric, categorical = use.numeric, use.categorical
    if not numeric and not categorical and not use.text and not use.date:
        numeric, categorical = _NUMERIC, _CATEGORICAL

    def random(name: str) -> np.random.Generator:
        entropy = (seed % 2**64, zlib.crc32(part.encode()), zlib.crc32(name.encode()))
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy)))

    columns: dict[str, np.ndarray] = {}
    total = np.zeros(num_examples)
    for name in numeric:
        columns[name] = random(name).standard_normal(num_examples, np.float32)
        total += _draw_effects(name, 1)[0] * columns[name]
    for name in categorical:
        codes = random(name).integers(0, len(_TEXTS), num_examples)
        columns[name] = _TEXTS[codes]
        total += _draw_effects(name, len(_TEXTS))[codes]
    for name in use.date:
        days = random(name).integers(0, _DAYS, num_examples)
        columns[name] = np.datetime64("2000-01-01") + days
        total += _draw_effects(name, 1)[0] * (days / _DAYS - 0.5) * 4
    for name in use.text:
        columns[name], effect = _draw_texts(random(name), name, num_examples)
        total += effect
    for name, target in use.targets:
        value = total + 0.3 * random(name).standard_normal(num_examples)
        columns[name] = _CLASSES[(value > 0).astype(int)] if target == CATEGORY else value
    if kind == "constant":
        columns = {name: np.repeat(array[:1], num_examples) for name, array in columns.items()}
    if use.weight:
        columns[use.weight] = np.ones(num_examples, np.float32)
    return RandomTable([("synthetic", columns)])


def _draw_texts(
    generator: np.random.Generator, name: str, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns random texts, and the sum of the effects of their words."""
    lengths = generator.integers(*_TEXT_WORDS, count, endpoint=True)
    words = generator.integers(0, len(_WORDS), (count, _TEXT_WORDS[1]))
    inside = np.arange(_TEXT_WORDS[1]) < lengths[:, np.newaxis]
    effects = (_draw_effects(name, len(_WORDS))[words] * inside).sum(axis=1)
    texts = [" ".join(row[:length]) for row, length in zip(_WORDS[words], lengths, strict=True)]
    return np.array(texts), effects


def _draw_effects(name: str, count: int) -> np.ndarray:
    generator = np.random.Generator(np.random.Philox(zlib.crc32(name.encode())))
    return generator.standard_normal(count)
