"""The state of an object of the user: its attributes that are plain values, as JSON and arrays."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import io
import math
import re
import zipfile
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from orbit_runner.errors import RunnerError
from orbit_runner.utils.files import write_atomically

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

    Arrays = dict[str, np.ndarray]  # By their SHA-256.


class ObjectState:
    """The attributes of an object that change, and how they are stored.

    Arguments of the constructor are only stored after a change, so that other arguments have an
    effect when a run is resumed. The same holds for arrays, which may be a whole dataset.
    """

    def __init__(self, target: Any, skipped: Iterable[str]) -> None:
        self._target = target
        self._skipped = frozenset(skipped)
        self._arguments = frozenset(_argument_names(type(target)))
        self._first = {name: encoded for name, encoded, _ in self._attributes()}

    def _attributes(self) -> Iterator[tuple[str, Any, Arrays]]:
        """Yields the name, the JSON and the arrays of each attribute that is a plain value."""
        for name, value in vars(self._target).items():
            arrays: Arrays = {}
            with contextlib.suppress(TypeError):
                if name not in self._skipped:
                    yield name, encode(value, arrays), arrays

    def unstored(self) -> list[str]:
        """Returns the attributes that may change, but cannot be stored."""
        known = {*self._skipped, *self._arguments, *(name for name, *_ in self._attributes())}
        return [
            name
            for name, value in vars(self._target).items()
            if name not in known and not (callable(value) or hasattr(value, "write"))
        ]

    def read(self, arrays: Arrays) -> JsonObject:
        """Returns the attributes as JSON, and adds their arrays to `arrays`."""
        stored = {}
        for name, encoded, own in self._attributes():
            is_same = name in self._first and self._first[name] == encoded
            if not (is_same and (own or name in self._arguments)):
                stored[name] = encoded
                arrays.update(own)
        return stored

    def write(self, stored: JsonObject, arrays: Arrays) -> None:
        """Sets the attributes to what `read` returned."""
        for name, encoded in stored.items():
            setattr(self._target, name, decode(encoded, arrays))


def _argument_names(cls: type) -> Iterator[str]:
    for base in cls.__mro__:
        own = vars(base).get("__init__")
        if own is not None and base is not object:
            yield from inspect.signature(own).parameters


def encode(value: Any, arrays: Arrays) -> Any:
    """Returns a plain value as JSON that `decode` reads, and adds its arrays to `arrays`.

    Raises `TypeError` unless it consists of numbers, texts, None, arrays, lists, dicts and sets.
    """
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        data = np.ascontiguousarray(value)
        digest = hashlib.sha256(f"{data.dtype} {data.shape}".encode())
        if data.nbytes:
            digest.update(data.reshape(-1).view(np.uint8).data)
        arrays[digest.hexdigest()] = data
        return {"array": digest.hexdigest(), "dtype": str(data.dtype)}
    if type(value) is dict:
        return {"dict": [[encode(k, arrays), encode(v, arrays)] for k, v in value.items()]}
    if type(value) is list:
        return [encode(item, arrays) for item in value]
    if type(value) in (tuple, set):
        items = sorted(value, key=repr) if type(value) is set else value
        return {type(value).__name__: [encode(item, arrays) for item in items]}
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return {"number": encode(value.item(), arrays), "dtype": str(value.dtype)}
    if type(value) is float and not math.isfinite(value):
        return {"float": str(value)}  # JSON has neither NaN nor infinities.
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise TypeError(f"{type(value).__name__} is not a plain value")


def decode(value: Any, arrays: Arrays) -> Any:
    """Returns the value that `encode` encoded."""
    if isinstance(value, list):
        return [decode(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        array = arrays[value["array"]]
        dtype = np.dtype(value["dtype"])  # NumPy does not know types such as bfloat16 by itself.
        return array if array.dtype == dtype else array.view(dtype)
    if "number" in value:
        return np.dtype(value["dtype"]).type(decode(value["number"], arrays))
    if "dict" in value:
        return {decode(k, arrays): decode(v, arrays) for k, v in value["dict"]}
    if "float" in value:
        return float(value["float"])
    ((kind, items),) = value.items()
    return {"tuple": tuple, "set": set}[kind](decode(item, arrays) for item in items)


# Checkpoints that are being written may need the files of the last states.
_RECENT = 4
_ARRAY_FILE = re.compile(r"[0-9a-f]{32}\.npz")


class ArrayFiles:
    """The files of the arrays of states, which may be as large as a model.

    A file is named by its content, so that several checkpoints may share it. It is removed when no
    checkpoint names it.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._directory = run / "callbacks"
        self._recent: deque[str] = deque(maxlen=_RECENT)

    def write(self, arrays: Arrays) -> str:
        """Writes arrays, and returns the name of their file; "" if there are none."""
        if not arrays:
            return ""
        name = hashlib.sha256("".join(sorted(arrays)).encode()).hexdigest()[:32] + ".npz"
        if name not in self._recent:
            self._recent.append(name)
            if not (self._directory / name).exists():
                buffer = io.BytesIO()
                np.savez(buffer, **arrays)  # type: ignore[arg-type]
                write_atomically(self._directory / name, buffer.getvalue())
                self._prune()
        return name

    def _prune(self) -> None:
        records = []
        for path in self._run.glob("*/*-*.json"):
            with contextlib.suppress(FileNotFoundError):  # Another thread removes checkpoints.
                records.append(path.read_text("utf-8", "replace"))
        for path in self._directory.glob("*.npz"):
            is_own = _ARRAY_FILE.fullmatch(path.name) and path.name not in self._recent
            if is_own and not any(path.name in text for text in records):
                path.unlink(missing_ok=True)

    def read(self, name: str) -> Arrays:
        """Returns the arrays of a file, {} if the name is "".

        Raises RunnerError if the file is missing or damaged.
        """
        if not name:
            return {}
        try:
            with np.load(self._directory / name, allow_pickle=False) as file:
                return dict(file)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise RunnerError(
                f"{self._directory / name} cannot be read: {error}\nthe checkpoint needs it for "
                "the state of the callbacks; restore the file, or train in another directory",
                code="damaged-checkpoint",
            ) from error
