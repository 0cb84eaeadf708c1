"""Synthetic data, for benchmarks and for trying out a model before its data is available."""

from __future__ import annotations

import dataclasses
import json
import math
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from orbit_runner.config.schema.base import INT_MAX, is_finite_number
from orbit_runner.data.arrays import RepeatedArray
from orbit_runner.data.images.dataset import ImageArrays
from orbit_runner.data.source import ArraySource
from orbit_runner.errors import DataError

# Images repeat once they take this much memory.
_IMAGE_BYTES = 2**26
_IMAGE_SIZE = (32, 32, 3)
_CLASSES = 10
_KEYS = ("shape", "dtype", "low", "high", "value")


@dataclasses.dataclass(frozen=True)
class _Leaf:
    path: str
    shape: tuple[int, ...]
    dtype: np.dtype
    low: float | None
    high: float | None
    value: float


def load(
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

    def make(leaf: _Leaf) -> np.ndarray | RepeatedArray:
        try:
            return draw(leaf)
        except (ValueError, OverflowError) as error:  # NumPy checks the range of the dtype.
            got = f"low {leaf.low}, high {leaf.high}, value {leaf.value}"
            raise _error(leaf.path, got, f"values of {leaf.dtype}: {error}") from None

    def draw(leaf: _Leaf) -> np.ndarray | RepeatedArray:
        shape = (num_examples, *leaf.shape)
        if kind == "constant":
            return np.broadcast_to(np.array(leaf.value, leaf.dtype), shape)
        row = math.prod(leaf.shape) * leaf.dtype.itemsize
        rows = num_examples if max_bytes is None else max(1, min(num_examples, max_bytes // row))
        array = _draw_array(leaf, (rows, *leaf.shape), seed)
        return array if rows == num_examples else RepeatedArray(array, num_examples)

    tree = _parse_node(features, "features")
    if isinstance(tree, _Leaf):
        raise _error("features", features, "the arrays by name, such as {x: {shape: [2]}}")
    return ArraySource(
        name="synthetic", arrays=_map_leaves(make, tree), num_classes=_count_classes(tree)
    )


def _map_leaves(
    make: Callable[[_Leaf], np.ndarray | RepeatedArray], tree: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        name: make(node) if isinstance(node, _Leaf) else _map_leaves(make, node)
        for name, node in tree.items()
    }


def _draw_array(leaf: _Leaf, shape: tuple[int, ...], seed: int) -> np.ndarray:
    entropy = (seed % 2**64, zlib.crc32(leaf.path.encode()))
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy)))
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
    source = load(features=features, seed=seed or 0, max_bytes=_IMAGE_BYTES, **settings)
    return ImageArrays.from_source(source)
