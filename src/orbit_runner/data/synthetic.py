"""Synthetic data, for benchmarks and for trying out a model before its data is available.

There are images, tables, sentence pairs, and ratings. The values are random, and depend only on the
settings and on the seed.
"""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np

from orbit_runner.data.arrays import Gathered
from orbit_runner.data.images.dataset import ImageArrays
from orbit_runner.data.ratings.interactions import Interactions
from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.tables.array_tables import array_table
from orbit_runner.data.tables.columns import CATEGORY, DATE, NUMBER, TEXT
from orbit_runner.data.tables.dataset import TableDataset, TableReader, TableUse
from orbit_runner.data.text.parallel_text import PairDataset
from orbit_runner.data.text.source import EOS, UNKNOWN, PairSource, Ragged
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary

# Images repeat once they take this much memory.
_IMAGE_BYTES = 2**26
_IMAGE_SIZE = (32, 32, 3)
_CLASSES = 10
# The columns of a table without features in the config.
_COLUMNS = (*((f"x{number}", NUMBER) for number in range(8)), ("c0", CATEGORY), ("c1", CATEGORY))
_WORDS = np.array([f"word{number}" for number in range(100)])
_DAYS = 7305  # twenty years
_TEXT_LENGTH = 8
_FEW = 5  # categories of a column
_FIRST_SUBWORD = UNKNOWN + 1
_SHORTEST = 2  # subwords of a sentence
# Interactions of a user: minimum, and 1 + mean number of further ones.
_MIN_INTERACTIONS = 20
_EXTRA = 12
_VECTOR_SIZE = 4
_BLOCK_USERS = 256
_SHARPNESS = 4.0


def _generator(seed: int, *stream: int | str) -> np.random.Generator:
    """Returns the generator of one of the independent streams of a seed."""
    numbers = [part if isinstance(part, int) else zlib.crc32(part.encode()) for part in stream]
    sequence = np.random.SeedSequence((seed % 2**64, *numbers))
    return np.random.Generator(np.random.Philox(sequence))


def load_images(
    *,
    num_examples: int,
    seed: int | None,
    input_size: tuple[int, ...] | None,
    num_classes: int | None,
) -> ImageArrays:
    """Returns random images of a size and with the classes that a task wants.

    Images that take more than 64 MiB repeat, and are stored once.
    """
    size = input_size or _IMAGE_SIZE
    classes = num_classes or _CLASSES
    pixels, labels = (_generator(seed or 0, f"features.{name}") for name in ("image", "label"))
    rows = max(1, min(num_examples, _IMAGE_BYTES // math.prod(size)))
    image: Any = pixels.integers(0, 256, (rows, *size), np.uint8)
    if rows < num_examples:
        image = Gathered(image, np.arange(num_examples, dtype=np.int32) % rows)
    label = labels.integers(0, classes, num_examples, np.int32)
    return ImageArrays("synthetic", {"image": image, "label": label}, num_classes=classes)


def load_table(
    *, num_examples: int, seed: int | None, is_training: bool, use: TableUse
) -> TableDataset:
    """Returns a table of random columns with the names that the config asks for.

    Another seed gives other values, and so does another section. Without features in the config,
    there are 8 numbers and 2 categories. Numbers are from 0 to 1, a date is one of twenty years,
    a category is one of 5, and a text has 8 words.
    """
    kinds = dict(use.kinds if use.has_features else (*_COLUMNS, *use.kinds))
    known = dict(_COLUMNS)
    kinds = {name: kind or known.get(name, CATEGORY) for name, kind in kinds.items()}
    section = "train" if is_training else "validation"
    columns: dict[str, np.ndarray] = {}
    for name, column_kind in kinds.items():
        random = _generator(seed or 0, section, name)
        if column_kind == NUMBER:  # Not negative, because it may be a weight.
            columns[name] = random.random(num_examples, np.float32)
        elif column_kind == DATE:
            days = random.integers(0, _DAYS, num_examples)
            columns[name] = np.datetime64("2000-01-01") + days
        else:
            most, length = (len(_WORDS), _TEXT_LENGTH) if column_kind == TEXT else (_FEW, 1)
            words = _WORDS[random.integers(0, most, (num_examples, length))]
            columns[name] = np.array([" ".join(row) for row in words])
    return array_table("synthetic", [("synthetic", columns)])


TABLE = TableReader(load_table)


class SyntheticPairs(PairDataset):
    """Sentences of random subwords."""

    def read(self, vocab_size: int, vocabulary: Vocabulary | None) -> PairSource:
        """Returns the pairs, drawn once per process."""
        return load_pairs(
            num_examples=self.section.synthetic.num_examples,
            vocab_size=vocab_size,
            max_length=self.section.max_seq_length,
            seed=self.section.seed or 0,
        )


@cache_source(maxsize=8)
def load_pairs(*, num_examples: int, vocab_size: int, max_length: int, seed: int = 0) -> PairSource:
    """Returns synthetic pairs, without references.

    Ids are from 3 to `vocab_size` - 1, followed by `EOS`. `max_length` is the maximum number of
    tokens of a sentence, including `EOS`. The lengths of sources are uniform from 2 to
    `max_length`, and a target is about as long as its source.
    """
    generator = np.random.Generator(np.random.Philox(seed % 2**64))
    sources = generator.integers(_SHORTEST, max_length + 1, num_examples)
    # Most translations differ in length by less than a fifth.
    factors = generator.uniform(0.8, 1.2, num_examples)
    targets = np.clip(np.rint(sources * factors).astype(np.int64), _SHORTEST, max_length)
    inputs, outputs = (
        _append_end(
            generator.integers(_FIRST_SUBWORD, vocab_size, lengths.sum(), np.int32), lengths
        )
        for lengths in (sources, targets)
    )
    return PairSource("synthetic", inputs, outputs, vocab_size)


def _append_end(values: np.ndarray, lengths: np.ndarray) -> Ragged:
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    values[offsets[1:] - 1] = EOS
    return Ragged(values, offsets)


def load_ratings(*, num_examples: int = 1024, num_items: int = 500, seed: int = 0) -> Interactions:
    """Returns at least `num_examples` synthetic interactions, user by user, with ids from 1.

    Users and items have random preference vectors. A user chooses items without replacement, each
    with a probability proportional to exp(sharpness · cosine of the vectors) (Plackett–Luce): the
    items with the largest sums of score and Gumbel noise are chosen. They are in random order, so
    that the latest one is like the others.

    Users are added until there are enough interactions. `num_items` must be at least 40. With the
    same seed, a smaller dataset is the beginning of a larger one.
    """
    items = []
    counts = []
    total = 0
    block = 0
    while total < num_examples:
        chosen, sizes = _draw_user_block(block, num_items, seed)
        enough = int(np.searchsorted(np.cumsum(sizes), num_examples - total)) + 1
        items.append(chosen[: sizes[:enough].sum()])
        counts.append(sizes[:enough])
        total = total + len(items[-1])
        block = block + 1
    users = np.repeat(np.arange(1, sum(map(len, counts)) + 1), np.concatenate(counts))
    return Interactions(
        "synthetic",
        users,
        np.concatenate(items) + 1,
        np.arange(total),
        known_items=np.arange(1, num_items + 1),
    )


def _draw_user_block(block: int, num_items: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = _generator(seed, 1 + block)
    extra = generator.geometric(1 / _EXTRA, _BLOCK_USERS) - 1
    sizes = np.minimum(_MIN_INTERACTIONS + extra, num_items // 2)
    scores = _SHARPNESS * _preference_vectors(generator, _BLOCK_USERS) @ _preference_vectors(
        _generator(seed, 0), num_items
    ).T + generator.gumbel(size=(_BLOCK_USERS, num_items))
    ranked = np.argsort(-scores, axis=1, kind="stable")
    rows = [generator.permutation(row[:size]) for row, size in zip(ranked, sizes, strict=True)]
    return np.concatenate(rows), sizes


def _preference_vectors(generator: np.random.Generator, count: int) -> np.ndarray:
    vectors = generator.standard_normal((count, _VECTOR_SIZE))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
