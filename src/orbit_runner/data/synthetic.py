"""Synthetic data, for benchmarks and for trying out a model before its data is available.

There are arrays such as images, tables, sentence pairs, and ratings. The values depend only on the
settings and on the seed.
"""

from __future__ import annotations

import dataclasses
import json
import math
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from orbit_runner.config.schema.base import INT_MAX, is_finite_number
from orbit_runner.data.arrays import Gathered
from orbit_runner.data.images.dataset import ImageArrays
from orbit_runner.data.ratings.interactions import Interactions
from orbit_runner.data.source import ArraySource
from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.tables.array_tables import array_table
from orbit_runner.data.tables.columns import CATEGORY, DATE, NUMBER, TEXT
from orbit_runner.data.tables.dataset import TableDataset, TableReader, TableUse
from orbit_runner.data.text.parallel_text import PairDataset
from orbit_runner.data.text.source import EOS, UNKNOWN, PairSource, Ragged
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary
from orbit_runner.errors import DataError

# Images repeat once they take this much memory.
_IMAGE_BYTES = 2**26
_IMAGE_SIZE = (32, 32, 3)
_CLASSES = 10
_KEYS = ("shape", "dtype", "low", "high", "value")
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


@dataclasses.dataclass(frozen=True)
class _Leaf:
    path: str
    shape: tuple[int, ...]
    dtype: np.dtype
    low: float | None
    high: float | None
    value: float


def load_arrays(
    *,
    features: Mapping[str, object],
    num_examples: int,
    kind: str = "random",
    seed: int = 0,
    max_bytes: int | None = None,
) -> ArraySource:
    """Returns an `ArraySource` of constant or random arrays in any nested structure.

    `features` is a nested mapping of array specifications. A mapping with the key `shape` specifies
    an array: `shape` of one example, `dtype` (default `float32`), `low` and `high` of random
    numbers (`high` is excluded), and `value` (default 0) of constant numbers. By default, random
    integers are from 0 to 1 (`uint8`: 0 to 255), and random floats are normal with mean 0 and
    standard deviation 1.

    `kind` is `random` or `constant`, which takes the memory of one example. Each random array
    depends only on `seed` and its own path. `max_bytes` limits the memory of each random array,
    whose rows then repeat; None for no limit. `num_classes` is `high` of an integer `label`. Raises
    `DataError` with the dotted path of a wrong specification.
    """
    if "shape" in features:
        raise _error("features", features, "the arrays by name, such as {x: {shape: [2]}}")

    def make(node: Any) -> Any:
        if isinstance(node, Mapping):
            return {name: make(child) for name, child in node.items()}
        try:
            return draw(node)
        except (ValueError, OverflowError) as error:  # NumPy checks the range of the dtype.
            got = f"low {node.low}, high {node.high}, value {node.value}"
            raise _error(node.path, got, f"values of {node.dtype}: {error}") from None

    def draw(leaf: _Leaf) -> np.ndarray | Gathered:
        if kind == "constant":
            value = np.array(leaf.value, leaf.dtype)  # `np.full` does not check the range.
            return Gathered(np.full((1, *leaf.shape), value), size=num_examples)
        row = math.prod(leaf.shape) * leaf.dtype.itemsize
        rows = num_examples if max_bytes is None else max(1, min(num_examples, max_bytes // row))
        array = _draw_array(leaf, (rows, *leaf.shape), seed)
        return array if rows == num_examples else Gathered(array, size=num_examples)

    tree = _parse_node(features, "features")
    return ArraySource(name="synthetic", arrays=make(tree), num_classes=_count_classes(tree))


def _draw_array(leaf: _Leaf, shape: tuple[int, ...], seed: int) -> np.ndarray:
    generator = _generator(seed, leaf.path)
    if leaf.low is None or leaf.high is None:
        return generator.standard_normal(shape, np.float32).astype(leaf.dtype, copy=False)
    if leaf.dtype.kind == "f":
        unit = generator.random(shape, np.float32)
        return (leaf.low + (leaf.high - leaf.low) * unit).astype(leaf.dtype, copy=False)
    if leaf.dtype.kind == "b":
        return generator.integers(0, 2, shape, np.uint8).astype(bool)
    return generator.integers(int(leaf.low), int(leaf.high), shape, leaf.dtype)


def _count_classes(tree: Mapping[str, object]) -> int | None:
    label = tree.get("label")
    if isinstance(label, _Leaf) and label.dtype.kind in "iu" and label.high is not None:
        return int(label.high)
    return None


def _parse_node(node: object, path: str) -> Any:
    if not isinstance(node, Mapping) or not node:
        raise _error(path, node, "a mapping with the key `shape`, or a mapping of such mappings")
    if "shape" in node:
        return _parse_leaf(node, path)
    return {name: _parse_node(child, f"{path}.{name}") for name, child in node.items()}


def _parse_leaf(node: Mapping[str, Any], path: str) -> _Leaf:
    for key in node:
        if key not in _KEYS:
            raise _error(f"{path}.{key}", node[key], f"only the keys {', '.join(_KEYS)}")
    shape = node["shape"]
    is_list = isinstance(shape, Iterable) and not isinstance(shape, str | Mapping)
    if not is_list or not all(type(size) is int and 1 <= size <= INT_MAX for size in shape):
        raise _error(f"{path}.shape", shape, f"a list of integers from 1 to {INT_MAX}")
    try:
        dtype = np.dtype(node.get("dtype", "float32"))
    except TypeError:
        dtype = np.dtype(object)
    if dtype.kind not in "fiub":
        raise _error(f"{path}.dtype", node["dtype"], "a numeric or boolean dtype, such as uint8")
    for key in ("low", "high", "value"):
        if node.get(key) is not None and not is_finite_number(node[key]):
            raise _error(f"{path}.{key}", node[key], "a number")
    low, high = node.get("low"), node.get("high")
    if dtype.kind == "f" and (low is None) != (high is None):
        raise _error(path, dict(node), "both `low` and `high`, or neither")
    if dtype.kind != "f":
        low = 0 if low is None else low
        high = (256 if dtype == np.uint8 else 2) if high is None else high
    return _Leaf(path, tuple(shape), dtype, low, high, node.get("value") or 0)


def _error(path: str, got: object, expected: str) -> DataError:
    return DataError(
        f"synthetic: {path}: got {got!r}, expected {expected}",
        field="synthetic",
        code="out-of-range",
    )


def load_images(
    *,
    synthetic: str,
    seed: int | None,
    input_size: tuple[int, ...] | None,
    num_classes: int | None,
) -> ImageArrays:
    """Returns images of a size and with the classes that a task wants.

    `synthetic` is the setting of this name as JSON.
    """
    settings = json.loads(synthetic)
    features = settings.pop("features") or {
        "image": {"shape": input_size or _IMAGE_SIZE, "dtype": "uint8", "low": 0, "high": 256},
        "label": {"shape": [], "dtype": "int32", "low": 0, "high": num_classes or _CLASSES},
    }
    source = load_arrays(features=features, seed=seed or 0, max_bytes=_IMAGE_BYTES, **settings)
    return ImageArrays.from_source(source)


def load_table(
    *, num_examples: int, kind: str, seed: int | None, is_training: bool, use: TableUse
) -> TableDataset:
    """Returns a table of random columns with the names that the config asks for.

    Another seed gives other values, and so does another section. Without features in the config,
    there are 8 numbers and 2 categories. Numbers are from 0 to 1, a date is one of twenty years,
    a category is one of 5, and a text has 8 words. If `kind` is `constant`, all rows are equal.
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
    if kind == "constant":
        columns = {name: np.repeat(array[:1], num_examples) for name, array in columns.items()}
    return array_table("synthetic", [("synthetic", columns)])


TABLE = TableReader(load_table)


class SyntheticPairs(PairDataset):
    """Sentences of random subwords."""

    def read(self, vocab_size: int, vocabulary: Vocabulary | None) -> PairSource:
        """Returns the pairs, drawn once per process."""
        return load_pairs(
            num_examples=self.section.synthetic.num_examples,
            kind=self.section.synthetic.kind,
            vocab_size=vocab_size,
            max_length=self.section.max_seq_length,
            seed=self.section.seed or 0,
        )


@cache_source(maxsize=8)
def load_pairs(
    *, num_examples: int, vocab_size: int, max_length: int, kind: str = "random", seed: int = 0
) -> PairSource:
    """Returns synthetic pairs, without references.

    Ids are from 3 to `vocab_size` - 1, followed by `EOS`. `max_length` is the maximum number of
    tokens of a sentence, including `EOS`. If `kind` is `random`, ids are random, the lengths of
    sources are uniform from 2 to `max_length`, and a target is about as long as its source. If it
    is `constant`, all sentences are equal and have `max_length` tokens.
    """
    if kind == "constant":
        lengths = np.full(num_examples, max_length)
        side = _append_end(np.full(lengths.sum(), _FIRST_SUBWORD, np.int32), lengths)
        return PairSource("synthetic", side, side, vocab_size)
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


def load_ratings(
    *, num_examples: int = 1024, num_items: int = 500, kind: str = "random", seed: int = 0
) -> Interactions:
    """Returns at least `num_examples` synthetic interactions, user by user, with ids from 1.

    Users and items have random preference vectors. A user chooses items without replacement, each
    with a probability proportional to exp(sharpness · cosine of the vectors) (Plackett–Luce): the
    items with the largest sums of score and Gumbel noise are chosen. They are in random order, so
    that the latest one is like the others.

    Users are added until there are enough interactions. `num_items` must be at least 40. If `kind`
    is `constant` and not `random`, all users choose the same items. With the same seed, a smaller
    dataset is the beginning of a larger one.
    """
    items = []
    counts = []
    total = 0
    block = 0
    while total < num_examples:
        chosen, sizes = _draw_user_block(block, num_items, kind, seed)
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


def _draw_user_block(
    block: int, num_items: int, kind: str, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    if kind == "constant":
        return np.tile(np.arange(_MIN_INTERACTIONS), _BLOCK_USERS), np.full(
            _BLOCK_USERS, _MIN_INTERACTIONS
        )
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
