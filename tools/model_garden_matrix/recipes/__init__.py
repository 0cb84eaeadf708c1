"""Recipes that make each experiment small enough to train two steps on a CPU."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Recipe = Callable[[Path], dict[str, Any]]


def recipes() -> dict[str, Recipe]:
    """Collects the `RECIPES` of all modules in this package, without importing TensorFlow.

    Returns:
        A recipe for each experiment, by name. A recipe writes data to an empty directory, and
        returns the overrides for it.

    Raises:
        ValueError: Two modules define different recipes for the same experiment.
    """
    found: dict[str, Recipe] = {}
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        for name, recipe in getattr(importlib.import_module(module.name), "RECIPES", {}).items():
            if found.setdefault(name, recipe) is not recipe:
                raise ValueError(f"{module.name} defines a second recipe for {name!r}")
    return found
