"""Arrays of a function or a program of the user, and objects that are read by index.

Imports no TensorFlow.
"""

from __future__ import annotations

import functools
import hashlib
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from orbit_runner.data.arrays import leaves, tree_of
from orbit_runner.data.indexed import ExampleReader, indexed_source
from orbit_runner.data.source import places_of_arrays
from orbit_runner.errors import DataError, first_line
from orbit_runner.tasks.keras.examples import ArrayExamples, Examples, W, X, Y
from orbit_runner.tasks.keras.passed_objects import ARRAYS

if TYPE_CHECKING:
    from orbit_runner.tasks.assets import Assets

_KINDS = "iufbSU"
_DIGITS = 16  # of a digest, in the name of a file
_MOST_BYTES = 64 * 2**20  # of arrays that a run keeps
_EXPECTED = (
    "expected x, (x, y), (x, y, w), or a dict with y, w (optional), and x or inputs by their names"
)


def arrays_of(returned: object, name: str) -> ArrayExamples:
    """Returns the examples that a function returned. Raises `DataError` for anything else."""
    if _is_indexable(returned):
        return _object_source(returned, name)
    if isinstance(returned, (tuple, list)) and len(returned) in (1, 2, 3):
        returned = dict(zip((X, Y, W), returned, strict=False))
    elif isinstance(returned, np.ndarray):
        returned = {X: returned}
    if not isinstance(returned, Mapping) or not {*returned} - {Y, W}:
        got = (
            f"keys {', '.join(map(str, returned))}"
            if isinstance(returned, Mapping)
            else type(returned)
        )
        raise _unusable(name, f"got {got}, {_EXPECTED}")
    rest = {key: value for key, value in returned.items() if key not in (Y, W)}
    features = rest[X] if X in rest and len(rest) == 1 else rest
    labels, weights = returned.get(Y), returned.get(W)
    size = _example_count(() if labels is None else labels, features)
    tree = {X: _arrays(_number_arrays(features, size), X, name)}
    size = len(next(leaves(tree))[1])
    # Models with a step of their own may need no labels.
    no_labels = np.zeros([size, 0], np.float32)
    tree[Y] = no_labels if labels is None else _arrays(_number_arrays(labels, size), Y, name)
    if weights is not None:
        tree[W] = _arrays(_number_arrays(weights, size), W, name)
    return ArrayExamples(name, tree, places=places_of_arrays("ARRAY", [(name, size)]))


def register_data(source: Examples) -> str:
    """Registers data for runs in this process. Returns the digest that names them in a config."""
    text = "\n".join(f"{row.name} {row.digest}" for row in source.data_files())
    digest = hashlib.sha256(text.encode()).hexdigest()
    ARRAYS[digest] = source
    return digest


def keep_arrays(digest: str, assets: Assets) -> None:
    """Keeps arrays that a program passed in its run, so that other processes have them, too.

    In another process, registers those of the run. Large arrays are not kept, and neither are
    objects and datasets that are read in pieces.
    """
    name = f"{digest[:_DIGITS]}.npz"
    source = ARRAYS.get(digest)
    if source is None:
        if assets.has(name):
            ARRAYS[digest] = assets.get(name, bytes, functools.partial(_read_arrays, name))
        return
    if source.stored is None:
        return
    arrays = dict(leaves(source.arrays))
    are_plain = all(isinstance(array, np.ndarray) for array in arrays.values())
    if are_plain and sum(array.nbytes for array in arrays.values()) <= _MOST_BYTES:
        assets.get(name, lambda: _file_of(arrays))


def _file_of(arrays: Mapping[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _read_arrays(name: str, content: bytes) -> Examples:
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = {path: file[path] for path in file.files}
    size = len(next(iter(arrays.values())))
    places = places_of_arrays("ARRAY", [(name, size)])
    return ArrayExamples(name, tree_of(arrays), places=places)


def named_below(arrays: Mapping[str, Any], tops: tuple[str, ...]) -> dict[str, Any]:
    """Returns arrays by path with those below `tops` by their names, which may have dots."""
    tree: dict[str, Any] = {}
    for path, array in arrays.items():
        top, _, name = path.partition(".")
        if name and top in tops:
            tree.setdefault(top, {})[name] = array
        else:
            tree[path] = array
    return tree


def _arrays(value: object, path: str, name: str) -> np.ndarray | dict[str, np.ndarray]:
    """Returns an array, or arrays by input or output."""
    if not isinstance(value, Mapping):
        return _array(value, path, name)
    if not value:
        raise _unusable(name, f"got no {path}, {_EXPECTED}")
    return {str(key): _array(array, f"{path}.{key}", name) for key, array in value.items()}


def _unusable(name: str, problem: str, code: str = "bad-data") -> DataError:
    """Returns the error for what the function `name` of a user returned."""
    return DataError(f"{name}: {problem}", field="function", code=code)


def _object_source(value: Any, name: str) -> ArrayExamples:
    """Returns the examples of an object that returns an item for each index."""
    has_batches = _returns_batches(value)
    reader = ExampleReader(
        name,
        value,
        lambda item: _example_of(item, name, has_lists=has_batches),
        has_batches=has_batches,
    )
    return ArrayExamples.from_source(indexed_source(reader))


def _is_indexable(value: object) -> bool:
    """Returns whether a value is an object that returns an item for each index."""
    if isinstance(value, (str, bytes, list, tuple, Mapping, np.ndarray)):
        return False
    return hasattr(value, "__len__") and hasattr(value, "__getitem__")


def _returns_batches(value: object) -> bool:
    """Returns whether an object is one of Keras, whose items are batches."""
    names = {cls.__name__ for cls in type(value).__mro__ if "keras" in cls.__module__}
    return bool(names & {"PyDataset", "Sequence"})


def _number_arrays(value: object, size: int) -> object:
    """Returns arrays by number of a list with an array for each input or output.

    A list with a row for each of `size` examples, or any other value, is returned as it is.
    """
    if not isinstance(value, (list, tuple)) or len(value) == size:
        return value
    if not all(_is_array(array) and len(array) == size for array in value):
        return value
    return {str(number): array for number, array in enumerate(value)}


def _example_count(*values: Any) -> int:
    """Returns the number of examples of labels and inputs, which may be lists of arrays."""
    parts = [
        next(iter(value.values()), ()) if isinstance(value, Mapping) else value for value in values
    ]
    sequences = [part for part in parts if isinstance(part, (list, tuple)) and part]
    arrays = [part for part in parts if _is_array(part)]
    rows = [part for part in sequences if not _is_array(part[0])]
    arrays += rows or [part[0] for part in sequences]
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
        raise _unusable(name, f"got an item of {got}, {_EXPECTED}", "bad-record")
    rest = {key: value for key, value in item.items() if key not in (Y, W)}
    tree = {X: rest[X] if X in rest and len(rest) == 1 else rest, Y: item[Y]}
    if has_lists:
        size = _example_count(tree[Y], tree[X])
        tree = {key: _number_arrays(value, size) for key, value in tree.items()}
    if W in item:
        tree[W] = np.float32(item[W])
    return tree_of({path: _example_array(value, path, name) for path, value in leaves(tree)})


def _example_array(value: object, path: str, name: str) -> np.ndarray:
    array = np.asarray(value)
    _require_unmasked(value, path, name)
    if array.dtype.kind in "SU":
        return array.astype(object)
    if array.dtype.kind not in "iufb" or array.dtype == object:
        raise _unusable(
            name, f"got {path} {array.dtype}, expected numbers or strings", "bad-record"
        )
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _array(value: object, path: str, name: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise _unusable(name, f"{path} is not an array: {first_line(error)}") from None
    _require_unmasked(value, path, name)
    if array.dtype == object and all(isinstance(item, (str, bytes)) for item in array.flat):
        array = array.astype(str if all(isinstance(item, str) for item in array.flat) else bytes)
    if array.ndim < 1 or array.dtype.kind not in _KINDS:
        raise _unusable(
            name,
            f"got {path} {array.dtype} {list(array.shape)}, expected an array of numbers "
            "or strings whose first axis is the examples\n"
            "convert a sparse array to a dense one, and pad rows of different lengths",
        )
    if array.dtype == np.float64:  # As in Keras, whose weights are float32.
        array = array.astype(np.float32)
    if array.dtype.kind == "f":
        _require_finite(array, path, name)
    kind = path.partition(".")[0]
    return (
        _labels(array, path, name) if kind == Y else _weights(array, name) if kind == W else array
    )


def _require_unmasked(value: object, path: str, name: str) -> None:
    """Raises `DataError` for an array with a mask, which no array of TensorFlow has."""
    if isinstance(value, np.ma.MaskedArray):
        raise _unusable(
            name, f"got {path} with a mask, which would be ignored\nreplace the masked values"
        )


def _require_finite(array: np.ndarray, path: str, name: str) -> None:
    if np.isfinite(array.sum(dtype=np.float64)):
        return
    finite = np.isfinite(array.reshape(len(array), -1)).all(axis=1)
    if not finite.all():
        raise _unusable(name, f"got {path} that is not finite in example {finite.argmin()}")


def _labels(array: np.ndarray, path: str, name: str) -> np.ndarray:
    if array.dtype.kind in "SU":
        raise _unusable(
            name,
            f"got {path} of strings, such as "
            f"{str(array.flat[0]) if array.size else ''!r:.40}, expected numbers\n"
            "number the classes: classes, y = np.unique(y, return_inverse=True)",
        )
    return array.astype(np.int32) if array.dtype == np.bool_ else array


def _weights(array: np.ndarray, name: str) -> np.ndarray:
    if array.dtype.kind not in "iuf" or (array < 0).any():
        raise _unusable(
            name, f"got w {array.dtype} {list(array.shape)}, expected numbers of at least 0"
        )
    if not array.any():
        raise _unusable(name, "got w of zeros, by which no example counts")
    return array.astype(np.float32)
