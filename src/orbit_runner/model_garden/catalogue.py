"""Finds what the installed Model Garden registers, by reading its sources without importing it.

Whether they can be imported is cached until an installed package changes, because it takes half a
minute on a busy machine to import every module that registers an experiment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib.util
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path

from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.errors import unknown_name_message
from orbit_runner.utils.cache import cache_directory, write_shared_file
from orbit_runner.version import __version__

PACKAGE = "official"
PREFIX = f"{PACKAGE}/"
_EXPERIMENT = "register_config_factory"
_TASK = "register_task_cls"
# Decorators that register a project's networks and data loaders when their modules are imported.
_PARTS = (
    "register_backbone_builder",
    "register_decoder_builder",
    "register_model_builder",
    "register_data_loader_cls",
    "bind",
)
# A regular expression, because parsing all the files would take five times as long at each start.
_DECORATOR = re.compile(
    rf"""^@(?:\w+\.)*(?P<kind>{"|".join((_EXPERIMENT, _TASK, *_PARTS))})"""
    r"""\(\s*(?:(?P<quote>['"])(?P<text>.+?)(?P=quote)|(?P<names>[\w.]+))""",
    re.MULTILINE,
)


@dataclasses.dataclass(frozen=True)
class Registration:
    """A decorator at the top level of a module that registers something."""

    kind: str  # the name of the decorator, such as `register_config_factory`
    name: str  # its argument: a string, or the last part of a dotted name
    module: str


@dataclasses.dataclass(frozen=True)
class Entry:
    """An experiment of Model Garden."""

    name: str  # without `official/`
    module: str  # the module that registers it


@functools.cache
def experiments() -> dict[str, Entry]:
    """Returns all experiments that modules of Model Garden register, sorted by name."""
    registered = (r for r in registrations() if r.kind == _EXPERIMENT)
    return {r.name: Entry(r.name, r.module) for r in sorted(registered, key=lambda r: r.name)}


def unknown_experiment(name: str, own: Iterable[str] = ()) -> ConfigError:
    """Returns the error for an unknown experiment name (without `official/`).

    `own` are the names that the user's modules register.
    """
    known = [f"{PREFIX}{experiment}" for experiment in (*experiments(), *own)]
    message, _, _ = unknown_name_message("experiment", f"{PREFIX}{name}", known).partition("\n")
    text = f"{message}\nrun `runner list --official` to list all; use --import MODULE for your own"
    return ConfigError([Problem("--experiment", text, code="unknown-name")])


def task_modules(class_name: str, near: str) -> list[str]:
    """Returns the modules that may register the task of a config class, the most likely first.

    They are sorted by the distance from `near`, the module that defines the class.
    """
    modules = {r.module for r in registrations() if r.kind == _TASK and r.name == class_name}
    return sorted(modules, key=lambda module: (-_shared_prefix(module, near), module))


def part_modules(module: str) -> list[str]:
    """Returns the modules of a module's project that register networks and data loaders."""
    project = project_of(module)
    modules = {r.module for r in registrations() if r.kind in _PARTS}
    return sorted(
        module_name for module_name in modules if project and project_of(module_name) == project
    )


def project_of(module: str) -> str:
    """Returns the project that a module belongs to, or "" if it is not in `official.projects`."""
    parts = module.split(".")
    return ".".join(parts[:3]) if parts[:2] == [PACKAGE, "projects"] else ""


def _shared_prefix(module: str, other: str) -> int:
    pairs = zip(module.split("."), other.split("."), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


@functools.cache
def registrations() -> tuple[Registration, ...]:
    """Returns everything that a decorator at the top level of a module registers."""
    spec = importlib.util.find_spec(PACKAGE)
    roots = [Path(root) for root in (spec.submodule_search_locations or ())] if spec else []
    return tuple(registration for root in roots for registration in _scan_directory(root))


def _scan_directory(root: Path) -> Iterator[Registration]:
    for path in sorted(root.rglob("*.py")):
        if path.stem.endswith("_test"):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if any(f"{kind}(" in text for kind in (_EXPERIMENT, _TASK, *_PARTS)):
            dotted = path.relative_to(root).with_suffix("").parts
            yield from _find_registrations(
                text, ".".join([PACKAGE, *(p for p in dotted if p != "__init__")])
            )


def _find_registrations(text: str, module: str) -> Iterator[Registration]:
    for match in _DECORATOR.finditer(text):
        # Skips examples in docstrings.
        if text.count('"""', 0, match.start()) % 2 == 0:
            name = match["text"] or match["names"].rpartition(".")[2]
            yield Registration(match["kind"], name, module)


# Maps the name of an experiment to its module and to the reason why that cannot be imported ("" if
# it can).
Availability = dict[str, tuple[str, str]]


def read_cache() -> Availability | None:
    """Returns the cached result for the installed packages, or None if nothing valid is cached."""
    try:
        cached = json.loads(_cache_path().read_text(encoding="utf-8"))
        return {name: (str(module), str(reason)) for name, (module, reason) in cached.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return None  # Missing, unreadable or damaged: computed again.


def check_imports(failures: Callable[[list[str]], dict[str, str]]) -> Availability:
    """Imports the modules that register experiments, and caches and returns the result.

    `failures` imports modules and returns the reason why each one fails, "" if it can be imported.
    """
    path = _cache_path()
    entries = experiments()
    reasons = failures(sorted({entry.module for entry in entries.values()}))
    availability = {name: (entry.module, reasons[entry.module]) for name, entry in entries.items()}
    # The home directory may be read-only. The result is then computed again next time.
    with contextlib.suppress(OSError):
        write_shared_file(path, json.dumps(availability).encode())
    return availability


def _cache_path() -> Path:
    return cache_directory("official") / f"experiments-{_fingerprint()}.json"


def _fingerprint() -> str:
    """Returns a fingerprint of everything that the result depends on."""
    # Not all of `sys.path`: importing setuptools adds its own copies of packages to it.
    places = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    distributions = metadata.distributions(path=places)
    packages = sorted(
        f"{distribution.name}=={distribution.version}" for distribution in distributions
    )
    known = [__version__, sys.version, sys.prefix, packages, sorted(_source_files())]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]


def _source_files() -> Iterator[tuple[str, int, int]]:
    """Yields path, size and modification time (ns) of each source file of Model Garden."""
    spec = importlib.util.find_spec(PACKAGE)
    waiting = [*(spec.submodule_search_locations or ())] if spec else []
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir() and entry.name != "__pycache__":
                    waiting.append(entry.path)
                elif entry.name.endswith(".py"):
                    status = entry.stat()
                    yield entry.path, status.st_size, status.st_mtime_ns
