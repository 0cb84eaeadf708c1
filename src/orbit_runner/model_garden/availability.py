"""Which experiments of Model Garden can be imported here, cached until a package changes.

To find out takes an import of every module that registers one: half a minute on a busy machine.
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
from orbit_runner.utils.cache import cache_folder, write_aside

# Name to its module and to why that cannot be imported; "" if it can.
Availability = dict[str, tuple[str, str]]


def read_cache() -> Availability | None:
    """Returns what is known of the installed packages, None if nothing is."""
    try:
        found = json.loads(_path().read_text(encoding="utf-8"))
        return {name: (str(module), str(reason)) for name, (module, reason) in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return None  # Not there, cannot be read, or damaged: it is made again.


def find_out(failures: Callable[[list[str]], dict[str, str]]) -> Availability:
    """Asks which modules can be imported, and caches the answer.

    Args:
        failures: Imports modules; returns the reason for each, "" if it can be imported.
    """
    path, entries = _path(), catalogue.experiments()
    reasons = failures(sorted({entry.module for entry in entries.values()}))
    found = {name: (entry.module, reasons[entry.module]) for name, entry in entries.items()}
    # A home directory may be read-only: then it is found out again next time.
    with contextlib.suppress(OSError):
        write_aside(path, json.dumps(found).encode())
    return found


def _path() -> Path:
    return cache_folder("official") / f"experiments-{_fingerprint()}.json"


def _fingerprint() -> str:
    """Returns a fingerprint of everything that the answer depends on."""
    # Not all of `sys.path`: setuptools adds its own copies of packages to it when it is imported.
    places = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    distributions = metadata.distributions(path=places)
    packages = sorted(f"{found.name}=={found.version}" for found in distributions)
    known = [__version__, sys.version, sys.prefix, packages, sorted(_files())]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]


def _files() -> Iterator[tuple[str, int, int]]:
    """Yields path, size and time of change of each source file of the package."""
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
