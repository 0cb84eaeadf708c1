"""Defers modules that TensorFlow and Model Garden import but that few runs use.

Importing them takes a fifth of the time until the first step. When they are deferred, their code
runs on the first access to an attribute instead of on import. Their behavior is the same otherwise.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
import types
from collections.abc import Sequence
from typing import Any

# No import accesses an attribute of these. Otherwise, deferring them would not help.
NAMES = (
    "cv2",
    "googleapiclient.discovery",
    "h5py",
    "matplotlib.pyplot",
    "numpy.f2py",
    "numpy.ma",
    "numpy.polynomial",
    "numpy.testing",
    "oauth2client.client",
    "pandas",
    "requests",
    "scipy.linalg",
    "scipy.ndimage",
    "scipy.stats",
    "sklearn.metrics",
    "tensorflow_datasets",
)
# Objects that other modules import by name. The code of their module runs when they are used.
OBJECTS = {"oauth2client.client": ("GoogleCredentials",)}

_lock = threading.RLock()


class Deferred(types.ModuleType):
    """A module whose code has not run yet. Afterward, it is an ordinary module."""

    def __getattr__(self, name: str) -> Any:
        """Runs the code in the thread that comes first, then looks up the attribute again."""
        if name in OBJECTS.get(self.__name__, ()):
            return DeferredObject(self, name)
        # `from … import` asks for `__path__`, which only packages have.
        if name == "__path__" and self.__dict__.get("_deferred", (None, ()))[1] is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return _get_attribute(self, name)


class DeferredObject:
    """An object in a module whose code has not run yet."""

    def __init__(self, module: types.ModuleType, name: str) -> None:
        self._module = module
        self._name = name

    def __getattr__(self, name: str) -> Any:
        """Runs the code of the module if it has not run yet."""
        return getattr(_get_attribute(self._module, self._name), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the code of the module if it has not run yet."""
        return _get_attribute(self._module, self._name)(*args, **kwargs)


def _get_attribute(module: types.ModuleType, name: str) -> Any:
    with _lock:
        waiting = module.__dict__.pop("_deferred", None)
        if waiting is not None:
            _run_module(module, *waiting)
        elif type(module) is Deferred:  # Accessed by its own code before it is defined.
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
    return getattr(module, name)


def _run_module(module: types.ModuleType, loader: importlib.abc.Loader, path: Any) -> None:
    if path is not None:
        module.__path__ = path
    try:
        loader.exec_module(module)
    except BaseException:
        # As after any failed import, the next import tries again.
        sys.modules.pop(module.__name__, None)
        raise
    finally:
        module.__class__ = types.ModuleType


class _DeferringLoader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        # Without `__path__`, importing a submodule runs the package first, as it should.
        path = module.__dict__.pop("__path__", None)
        module.__dict__["_deferred"] = (self._loader, path)
        module.__class__ = Deferred


class _ImportedModuleLoader(importlib.abc.Loader):
    """Loads a submodule that its package imported while Python was looking for the submodule."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

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
            return importlib.machinery.ModuleSpec(fullname, _ImportedModuleLoader(present))
        if fullname not in self.names:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _DeferringLoader(spec.loader)
        return spec


_finder = _Finder()


def defer_imports(names: Sequence[str] = NAMES) -> None:
    """Defers the code of modules until they are used, unless they have been imported already."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.names.update(names)
