"""How to make each experiment small enough to train two steps on a CPU."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Recipe = Callable[[Path], dict[str, Any]]


def recipes() -> dict[str, Recipe]:
    """Gathers what the modules of this package call `RECIPES`.

    Returns:
        By the name of the experiment: what writes data into an empty folder, and returns the
        overrides for them. Imports no tensorflow.

    Raises:
        ValueError: Two modules have different ones for an experiment.
    """
    found: dict[str, Recipe] = {}
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        for name, recipe in getattr(importlib.import_module(module.name), "RECIPES", {}).items():
            if found.setdefault(name, recipe) is not recipe:
                raise ValueError(f"{module.name} has another recipe for {name!r}")
    return found
