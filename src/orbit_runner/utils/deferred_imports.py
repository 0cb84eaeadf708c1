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
    "pandas",
    "requests",
    "scipy.linalg",
    "scipy.ndimage",
    "scipy.stats",
    "sklearn.metrics",
    "tensorflow_datasets",
)

_lock = threading.RLock()


class Deferred(types.ModuleType):
    """A module whose code has not run yet. Afterward, it is an ordinary module.

    Python's `LazyLoader` would run it when it is imported once more, and the code of a submodule
    twice.
    """

    def __getattr__(self, name: str) -> Any:
        """Runs the code in the thread that comes first, then looks up the attribute again."""
        with _lock:
            loader, path = self.__dict__.pop("_deferred", (None, None))
            if loader is not None:
                self._run(loader, path)
            elif type(self) is Deferred:  # Accessed by its own code before it is defined.
                raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(self, name)

    def _run(self, loader: importlib.abc.Loader, path: Any) -> None:
        if path is not None:
            self.__path__ = path
        try:
            loader.exec_module(self)
        except BaseException:
            # As after any failed import, the next import tries again.
            sys.modules.pop(self.__name__, None)
            raise
        finally:
            self.__class__ = types.ModuleType  # type: ignore[assignment]


class ReplacedLoader(importlib.abc.Loader):
    """Stands for the loader of a module while the module is imported."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        """Creates the module."""
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        """Gives the module its own loader again, but does not run it."""
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader


def find_spec_with(
    loader: type[ReplacedLoader], fullname: str, path: Any, target: Any = None
) -> importlib.machinery.ModuleSpec | None:
    """Returns how a module is imported, with another loader; None if there is no such module."""
    spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
    if spec is not None and spec.loader is not None:
        spec.loader = loader(spec.loader)
    return spec


class _DeferringLoader(ReplacedLoader):
    def exec_module(self, module: types.ModuleType) -> None:
        super().exec_module(module)
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
        return find_spec_with(_DeferringLoader, fullname, path, target)


_finder = _Finder()


def defer_imports(names: Sequence[str] = NAMES) -> None:
    """Defers the code of modules until they are used, unless they have been imported already."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.names.update(names)
