"""Checks which experiments of Model Garden can be imported, and caches the result.

This requires importing every module that registers an experiment, which takes half a minute on a
busy machine. The cached result is valid until an installed package changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

from orbit_runner import __version__
from orbit_runner.model_garden import catalogue
from orbit_runner.utils.cache import cache_directory, write_shared_file

# Maps the name of an experiment to its module and to the reason why that cannot be imported ("" if
# it can).
Availability = dict[str, tuple[str, str]]


def read_cache() -> Availability | None:
    """Returns the cached result for the installed packages, or None if nothing valid is cached."""
    try:
        found = json.loads(_cache_path().read_text(encoding="utf-8"))
        return {name: (str(module), str(reason)) for name, (module, reason) in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return None  # Missing, unreadable or damaged: computed again.


def check_imports(failures: Callable[[list[str]], dict[str, str]]) -> Availability:
    """Imports the modules that register experiments, and caches and returns the result.

    `failures` imports modules and returns the reason why each one fails, "" if it can be imported.
    """
    path, entries = _cache_path(), catalogue.experiments()
    reasons = failures(sorted({entry.module for entry in entries.values()}))
    found = {name: (entry.module, reasons[entry.module]) for name, entry in entries.items()}
    # The home directory may be read-only. The result is then computed again next time.
    with contextlib.suppress(OSError):
        write_shared_file(path, json.dumps(found).encode())
    return found


def _cache_path() -> Path:
    return cache_directory("official") / f"experiments-{_fingerprint()}.json"


def _fingerprint() -> str:
    """Returns a fingerprint of everything that the result depends on."""
    # Not all of `sys.path`: importing setuptools adds its own copies of packages to it.
    places = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    distributions = metadata.distributions(path=places)
    packages = sorted(f"{found.name}=={found.version}" for found in distributions)
    known = [__version__, sys.version, sys.prefix, packages, sorted(_source_files())]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]


def _source_files() -> Iterator[tuple[str, int, int]]:
    """Yields path, size and modification time (ns) of each source file of Model Garden."""
    spec = importlib.util.find_spec(catalogue.PACKAGE)
    waiting = [*(spec.submodule_search_locations or ())] if spec else []
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir() and entry.name != "__pycache__":
                    waiting.append(entry.path)
                elif entry.name.endswith(".py"):
                    status = entry.stat()
                    yield entry.path, status.st_size, status.st_mtime_ns
