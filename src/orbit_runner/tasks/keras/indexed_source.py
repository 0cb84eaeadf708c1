"""Examples that are read by index: objects of the user, and tf.Example records. No TensorFlow."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from orbit_runner.config.schema.data import input_paths
from orbit_runner.config.serialize import plain_value
from orbit_runner.data.arrays import leaves, tree_of
from orbit_runner.data.files import named_files
from orbit_runner.data.indexed import ExampleReader, indexed_source
from orbit_runner.data.source import ArraySource
from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.tfrecord.features import ExampleFiles
from orbit_runner.errors import DataError, nearest_name_hint, shorten
from orbit_runner.tasks.keras.config import Columns, KerasConfig, KerasDataConfig, columns_of
from orbit_runner.tasks.keras.table_source import W, X, Y

EXPECTED = (
    "expected x, (x, y), (x, y, w), or a dict with y, w (optional), and x or inputs by their names"
)


def unusable(name: str, problem: str, code: str = "bad-data") -> DataError:
    """Returns the error for what the function `name` of a user returned."""
    return DataError(f"{name}: {problem}", field="function", code=code)


def object_source(value: Any, name: str) -> ArraySource:
    """Returns the examples of an object that returns an item for each index."""
    has_batches = _returns_batches(value)
    reader = ExampleReader(
        name,
        value,
        lambda item: _example_of(item, name, has_lists=has_batches),
        has_batches=has_batches,
    )
    return indexed_source(reader)


def is_indexable(value: object) -> bool:
    """Returns whether a value is an object that returns an item for each index."""
    if isinstance(value, (str, bytes, list, tuple, Mapping, np.ndarray)):
        return False
    return hasattr(value, "__len__") and hasattr(value, "__getitem__")


def _returns_batches(value: object) -> bool:
    """Returns whether an object is one of Keras, whose items are batches."""
    names = {cls.__name__ for cls in type(value).__mro__ if "keras" in cls.__module__}
    return bool(names & {"PyDataset", "Sequence"})


def number_arrays(value: object, size: int) -> object:
    """Returns arrays by number of a list with an array for each input or output.

    A list with a row for each of `size` examples, or any other value, is returned as it is.
    """
    if not isinstance(value, (list, tuple)) or len(value) == size:
        return value
    if not all(_is_array(array) and len(array) == size for array in value):
        return value
    return {str(number): array for number, array in enumerate(value)}


def example_count(*values: Any) -> int:
    """Returns the number of examples of labels and inputs, which may be lists of arrays."""
    parts = [
        next(iter(value.values()), ()) if isinstance(value, Mapping) else value for value in values
    ]
    listed = [part for part in parts if isinstance(part, (list, tuple)) and part]
    arrays = [part for part in parts if _is_array(part)]
    rows = [part for part in listed if not _is_array(part[0])]
    arrays += rows or [part[0] for part in listed]
    return len(arrays[0]) if arrays else 0


def _is_array(value: Any) -> bool:
    return len(getattr(value, "shape", ())) > 0


def _example_of(item: object, name: str, *, has_lists: bool = False) -> dict[str, Any]:
    """Returns an item of an object as a tree of arrays: `x`, `y` and optionally `w`.

    `has_lists` says that a list of arrays has one for each input or output.
    """
    if isinstance(item, (tuple, list)) and len(item) in (2, 3):
        item = {
            key: value for key, value in zip((X, Y, W), item, strict=False) if value is not None
        }
    if not isinstance(item, Mapping) or Y not in item or len(item) < 2:
        got = f"keys {', '.join(map(str, item))}" if isinstance(item, Mapping) else type(item)
        raise unusable(name, f"got an item of {got}, {EXPECTED}", "bad-record")
    rest = {key: value for key, value in item.items() if key not in (Y, W)}
    tree = {X: rest[X] if X in rest and len(rest) == 1 else rest, Y: item[Y]}
    if has_lists:
        size = example_count(tree[Y], tree[X])
        tree = {key: number_arrays(value, size) for key, value in tree.items()}
    if W in item:
        tree[W] = np.float32(item[W])
    return tree_of({path: _example_array(value, path, name) for path, value in leaves(tree)})


def _example_array(value: object, path: str, name: str) -> np.ndarray:
    array = np.asarray(value)
    require_unmasked(value, path, name)
    if array.dtype.kind in "SU":
        return array.astype(object)
    if array.dtype.kind not in "iufb" or array.dtype == object:
        raise unusable(name, f"got {path} {array.dtype}, expected numbers or strings", "bad-record")
    return array.astype(np.float32) if array.dtype == np.float64 else array


def require_unmasked(value: object, path: str, name: str) -> None:
    """Raises `DataError` for an array with a mask, which no array of TensorFlow has."""
    if isinstance(value, np.ma.MaskedArray):
        raise unusable(
            name,
            f"got {path} with a mask, which would be ignored\nreplace the masked values, "
            "for example with filled(0), or omit these examples",
        )


def load_examples(config: KerasConfig, data: KerasDataConfig) -> ArraySource:
    """Returns the records of a section. The files are opened once per process."""
    if data.mixture:
        raise DataError(
            "records of tf.Example cannot be part of a mixture",
            field="mixture",
            code="not-supported",
        )
    settings = (config.inputs, config.outputs, config.weight_column, data.feature_shapes)
    texts = tuple(json.dumps(plain_value(setting), sort_keys=False) for setting in settings)
    return _open_examples(example_paths(data), *texts)


def example_paths(data: KerasDataConfig) -> tuple[Path, ...]:
    """Returns the files of a section."""
    return tuple(named_files(data.source, data.data_dir, input_paths(data)))


@cache_source(maxsize=4)
def _open_examples(
    paths: tuple[Path, ...], inputs: str, outputs: str, weight: str, shapes: str
) -> ArraySource:
    files = ExampleFiles(paths, json.loads(shapes))
    label, weight_name = columns_of(json.loads(outputs)), json.loads(weight)
    labels = {"": label} if isinstance(label, Columns) else label
    used = {name for columns in labels.values() for name in columns.names} | {weight_name}
    wanted = json.loads(inputs)

    def example_of(features: dict[str, np.ndarray]) -> dict[str, Any]:
        chosen = columns_of(wanted) if wanted else None
        if chosen is None or (isinstance(wanted, list) and isinstance(chosen, Columns)):
            names = (
                chosen.names if chosen else [name for name in sorted(features) if name not in used]
            )
            by_name = {name: Columns((name,)) for name in names}
            chosen = next(iter(by_name.values())) if len(by_name) == 1 else by_name
        item = {
            X: _named_features(features, {"": chosen} if isinstance(chosen, Columns) else chosen),
            Y: _named_features(features, labels),
        }
        if weight_name:
            item[W] = _feature(features, weight_name)
        return _example_of(item, files.parts[0][0])

    name = ", ".join(path.name for path in paths[:3]) + (", …" if len(paths) > 3 else "")
    reader = ExampleReader(f"tf_examples: {name}", files, example_of)
    source = indexed_source(reader, files.parts, "FILE")
    return dataclasses.replace(source, files=paths)


def _named_features(features: dict[str, np.ndarray], columns: Mapping[str, Columns]) -> Any:
    """Returns the values of features by input or output, or of the only one, whose name is ""."""
    values = {}
    for name, column in columns.items():
        parts = [_feature(features, feature) for feature in column.names]
        values[name] = np.stack(parts).astype(np.float32) if column.is_list else parts[0]
    return values[""] if [*values] == [""] else values


def _feature(features: dict[str, np.ndarray], name: str) -> np.ndarray:
    if name not in features:
        listed = shorten(", ".join(sorted(features)), 200)
        raise DataError(
            f"the records have no feature {name!r}{nearest_name_hint(name, list(features))}\n"
            f"features: {listed}",
            field="input_path",
            code="unknown-column",
        )
    return features[name]
