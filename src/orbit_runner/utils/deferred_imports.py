"""Modules that TensorFlow and Model Garden import at their start, and that few runs ever touch.

They are a fifth of the time until the first step. Here their code runs when something of theirs is
first asked for, and not when they are imported; what they are stays the same.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
import types
from collections.abc import Sequence
from typing import Any

# Nothing of these is asked for while others are being imported, else deferring gains nothing.
NAMES = (
    "cv2",
    "googleapiclient.discovery",
    "h5py",
    "matplotlib.pyplot",
    "pandas",
    "requests",
    "scipy.ndimage",
    "scipy.stats",
    "sklearn.metrics",
    "tensorflow_datasets",
)

_lock = threading.RLock()


class Deferred(types.ModuleType):
    """A module whose code has not run yet; it becomes an ordinary one when it has."""

    def __getattr__(self, name: str) -> Any:
        """Runs the code, by whichever thread comes first, and looks again."""
        with _lock:
            waiting = self.__dict__.pop("_deferred", None)
            if waiting is not None:
                _run(self, *waiting)
            elif type(self) is Deferred:  # Asked for by its own code, before it is there.
                raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(self, name)


def _run(module: types.ModuleType, loader: importlib.abc.Loader, path: Any) -> None:
    if path is not None:
        module.__path__ = path
    try:
        loader.exec_module(module)
    except BaseException:
        # As after an import that failed: the next one tries again.
        sys.modules.pop(module.__name__, None)
        raise
    finally:
        module.__class__ = types.ModuleType


class _Deferring(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        # Without its path, importing a part of a package runs the package first, as it should be.
        path = module.__dict__.pop("__path__", None)
        module.__dict__["_deferred"] = (self._loader, path)
        module.__class__ = Deferred


class _Present(importlib.abc.Loader):
    """Gives a part that its package imported itself, while Python was looking for that part."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return self._module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._spec


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(
        self, fullname: str, path: Any, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        present = sys.modules.get(fullname)
        if present is not None and target is None and fullname.rpartition(".")[0] in self.names:
            return importlib.machinery.ModuleSpec(fullname, _Present(present))
        if fullname not in self.names:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Deferring(spec.loader)
        return spec


_finder = _Finder()


def defer(names: Sequence[str] = NAMES) -> None:
    """Makes imports of some modules cost nothing until they are used.

    Args:
        names: Their dotted names; those that are imported already stay as they are.
    """
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.names.update(names)
