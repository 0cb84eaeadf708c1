"""Synthetic tables, whose targets depend on the features, for benchmarks and experiments."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from orbit_runner.data.tables.array_tables import array_reader
from orbit_runner.data.tables.columns import CATEGORY
from orbit_runner.data.tables.reader import TableReader

_NUMERIC = tuple(f"x{number}" for number in range(8))
_CATEGORICAL = ("c0", "c1")
_WORDS = np.array([f"word{number}" for number in range(100)])
_TEXT_WORDS = (3, 12)
_TEXTS = np.array(["a", "b", "c", "d", "e"])
_CLASSES = np.array(["no", "yes"])


def load(
    *,
    num_examples: int,
    kind: str,
    seed: int,
    part: str,
    numeric: Sequence[str],
    categorical: Sequence[str],
    targets: Mapping[str, str],
    weight: str = "",
    text: Sequence[str] = (),
) -> TableReader:
    """Returns a table of random columns with the given names.

    Args:
        num_examples: The number of rows.
        kind: `random`, or `constant` for equal rows.
        seed: Another seed gives other features, but the targets depend on them in the same way.
        part: Another name also gives other features.
        numeric: Columns of normal numbers; 8 if there are no other features.
        categorical: Columns of 5 texts.
        targets: The kind of each target. A number is a linear function of the features with some
            noise; a category is `yes` or `no`, depending on such a number.
        weight: A column of ones; "" for none.
        text: Columns of texts of 3 to 12 words out of 100.
    """
    if not numeric and not categorical and not text:
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
    for name in text:
        columns[name], effect = _draw_texts(random(name), name, num_examples)
        total += effect
    for name, target in targets.items():
        value = total + 0.3 * random(name).standard_normal(num_examples)
        columns[name] = _CLASSES[(value > 0).astype(int)] if target == CATEGORY else value
    if kind == "constant":
        columns = {name: np.repeat(array[:1], num_examples) for name, array in columns.items()}
    if weight:
        columns[weight] = np.ones(num_examples, np.float32)
    return array_reader("synthetic", [("synthetic", columns)])


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
