"""Random and grid search: the settings of a trial do not depend on those of any other."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from orbit_runner.sweep.search.space import Space

MAX_GRID = 100_000


def draw(seed: int, number: int, path: str) -> float:
    """Returns a number in [0, 1) for a setting of a trial.

    It depends on nothing else, so a larger budget or another setting in the space changes no
    value that was drawn before.
    """
    digest = hashlib.sha256(f"{seed}:{number}:{path}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


def random_settings(space: Space, seed: int, number: int) -> dict[str, Any]:
    """Returns the settings of a trial of a random search."""
    settings: dict[str, Any] = {}
    for one in space:
        if one.is_active(settings):
            settings[one.path] = one.values.quantile(draw(seed, number, one.path))
    return settings


def grid_settings(space: Space) -> list[dict[str, Any]]:
    """Returns the settings of all trials of a grid search; the last setting varies fastest.

    Stops after `MAX_GRID` trials. Each range must have a number of values.
    """
    found: list[dict[str, Any]] = []
    _extend(space, {}, found.append, lambda: len(found) >= MAX_GRID)
    return found


def _extend(
    rest: Space,
    settings: dict[str, Any],
    add: Callable[[dict[str, Any]], None],
    is_full: Callable[[], bool],
) -> None:
    if is_full():
        return
    if not rest:
        add(settings)
        return
    first, others = rest[0], rest[1:]
    if not first.is_active(settings):
        _extend(others, settings, add, is_full)
        return
    for value in first.values.grid() or ():
        _extend(others, {**settings, first.path: value}, add, is_full)
