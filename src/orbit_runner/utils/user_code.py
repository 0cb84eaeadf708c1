"""The user's own code: classes that a config names, and the source files of modules.

Modules of installed packages and of the standard library are left out, because their versions are
recorded elsewhere. A digest is computed when a module is first listed: the process runs that code,
even if the file is edited later.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import inspect
import os
import site
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from orbit_runner.errors import (
    SettingError,
    first_line,
    format_list,
)
from orbit_runner.utils.files import read_file
from orbit_runner.utils.log import note

_PACKAGE = str(Path(__file__).resolve().parents[1])
_INSTALLED = {"site-packages", "dist-packages"}
_MOST_NAMES = 5


class _Module(NamedTuple):
    module: object
    spec: object  # of its import
    digest: tuple[str, str] | None  # the name and the digest; None if it is not the user's


_modules: dict[str, _Module] = {}
# What begins the names of functions that a program passed to a run; no other process finds them.
PASSED = "__main__:"
# Their digests, of the current run, by name.
PASSED_CODE: dict[str, str] = {}


@dataclasses.dataclass
class CodeComparison:
    """Compares the code of this process with that of the checkpoint it started from."""

    _step: int = 0
    _before: Mapping[str, str] = dataclasses.field(default_factory=dict)
    _reported: set[str] = dataclasses.field(default_factory=set)

    def begin(self, step: int, before: Mapping[str, str]) -> None:
        """Begins to compare with the code in the record of a checkpoint."""
        self._step = step
        self._before = before

    def reasons(self) -> list[str]:
        """Returns that the code changed, [] if it did not."""
        names = changed_files(self._before, user_code())
        if not names:
            return []
        return [f"it was resumed at step {self._step} with changed code ({format_names(names)})"]

    def report(self) -> None:
        """Logs which files changed, each of them once."""
        names = [n for n in changed_files(self._before, user_code()) if n not in self._reported]
        self._reported.update(names)
        if names:
            note(
                f"note: this code changed since the checkpoint of step {self._step} was saved:\n"
                f"{format_list(names)}"
            )


def user_code() -> dict[str, str]:
    """Returns the SHA-256 of the source of each module of the user, by the module's name.

    Also the digests of the functions that a program passed to the current run.
    """
    # A copy, because other threads import modules meanwhile.
    modules = dict(sys.modules)
    for name, module in modules.items():
        known = _modules.get(name)
        # A reload gives a module another spec. It is not looked up for thousands of others.
        if known is not None and known.module is module and not _is_reloaded(known):
            continue
        values = _values(module)
        _modules[name] = _Module(module, values.get("__spec__"), _digest_module(name, values))
    digests = [known.digest for name in modules if (known := _modules.get(name)) is not None]
    return {**dict(sorted(filter(None, digests))), **PASSED_CODE}


def _is_reloaded(known: _Module) -> bool:
    """Returns whether a module of the user was imported again."""
    return known.digest is not None and _values(known.module).get("__spec__") is not known.spec


def changed_modules(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Returns the names of the modules whose source differs between two results.

    Modules that only one of them contains are left out: they may be imported later.
    """
    return [name for name, digest in before.items() if is_other(digest, now.get(name, digest))]


def is_other(before: str, now: str) -> bool:
    """Returns whether two digests differ; not if they are of different versions of Python."""
    return before != now and before.rpartition(":")[0] == now.rpartition(":")[0]


def changed_files(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Returns the files of the modules that changed, or their names if they are not loaded."""
    return [*map(_describe, changed_modules(before, now))]


def format_names(names: list[str]) -> str:
    """Returns the first of some names as text, and how many more there are."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _values(module: object) -> dict[str, object]:
    # `vars` would run the code of a module whose import is deferred.
    try:
        values = object.__getattribute__(module, "__dict__")
    except AttributeError:
        return {}
    return values if isinstance(values, dict) else {}


def _digest_module(name: str, values: Mapping[str, object]) -> tuple[str, str] | None:
    """Returns the name and the digest of a module of the user; None for all other modules."""
    path = values.get("__file__")
    if name == "__mp_main__" or not isinstance(path, str) or is_installed(path):
        return None
    try:
        digest = hashlib.sha256(read_file(Path(path))).hexdigest()
    except (OSError, ValueError):
        return None
    # Each program is called `__main__`; another may resume the run.
    return (os.path.basename(path) if name == "__main__" else name), digest


def is_installed(path: str) -> bool:
    """Returns whether a file belongs to this package, an installed one or the standard library."""
    # The real path is slow to find, and there are thousands of modules.
    return _is_below_installed(path) or _is_below_installed(os.path.realpath(path))


def _is_below_installed(path: str) -> bool:
    return not _INSTALLED.isdisjoint(path.split(os.sep)) or path.startswith(_installed_prefixes())


@functools.cache
def _installed_prefixes() -> tuple[str, ...]:
    directories = [*_installed_directories()]
    paths = [*directories, *map(os.path.realpath, directories)]
    return tuple({os.path.join(path, "") for path in paths})


def _installed_directories() -> Iterator[str]:
    yield _PACKAGE
    paths = sysconfig.get_paths()
    yield from (paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts"))
    yield from getattr(site, "getsitepackages", list)()
    yield from filter(None, [site.getusersitepackages()])


def _describe(name: str) -> str:
    """Returns the path of a module's file if it is loaded, else the name of the module."""
    path = _values(sys.modules.get(name)).get("__file__")
    if not isinstance(path, str):
        return name
    try:
        relative = os.path.relpath(path)
    except (OSError, ValueError):
        return path
    return path if relative.startswith(os.pardir) else relative


def import_function(reference: str, path: str) -> Callable[..., Any]:
    """Returns a function or class `module:name`. `path` is the setting that names it.

    Raises `SettingError` if it cannot be imported.
    """
    module_name, _, name = reference.partition(":")
    module = _import_module(module_name, path)
    attribute: object = getattr(module, name, None)
    if callable(attribute):
        return attribute
    reason = "is not a function or class" if attribute is not None else "does not exist"
    raise SettingError(path, f"{reference} {reason}", code="import-failed")


def _import_module(name: str, path: str) -> types.ModuleType:
    try:
        return importlib.import_module(name)
    except (ImportError, ValueError) as error:
        message = f"cannot import {name!r}: {first_line(error)}"
        raise SettingError(path, message, code="import-failed") from error


def load_class(
    class_name: str, base: type, arguments: Mapping[str, object], path: str
) -> type[Any]:
    """Returns a subclass of a class of the public API.

    `path` is the dotted path of the section with the settings `class_name` and `arguments`. Raises
    SettingError if the class does not exist, is not a subclass, or takes other arguments.
    """
    cls = _import_class(class_name, base, f"{path}.class_name")
    try:
        inspect.signature(cls).bind(**arguments)
    except TypeError as error:
        raise SettingError(
            f"{path}.arguments", f"{class_name}: {error}", code="bad-arguments"
        ) from error
    return cls


def _import_class(class_name: str, base: type, path: str) -> type[Any]:
    module_name, _, name = class_name.rpartition(".")
    module = _import_module(module_name, path)
    value = getattr(module, name, None)
    if isinstance(value, type) and issubclass(value, base):
        return value
    if value is not None:
        raise SettingError(
            path,
            f"{class_name} is not a subclass of orbit_runner.{base.__name__}",
            code="import-failed",
        )
    raise SettingError(path, f"{module_name} has no class {name!r}", code="unknown-name")
