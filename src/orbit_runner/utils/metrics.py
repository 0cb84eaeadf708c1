"""Results of a loop or an evaluation, nested by task if there are several; numbers of an array."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np


def summarize_array(
    values: np.ndarray,
) -> tuple[float | None, float | None, float | None, int, int]:
    """Returns the smallest, the largest and the mean finite value, and the counts of the others.

    The counts are those of NaN and of infinite values. Without a finite value, the others are None.
    """
    values = np.asarray(values, np.float64)
    finite = values[np.isfinite(values)]
    nan = int(np.isnan(values).sum())
    infinite = values.size - finite.size - nan
    if not finite.size:
        return None, None, None, nan, infinite
    return float(finite.min()), float(finite.max()), float(finite.mean()), nan, infinite


def flat_scalars(logs: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns the scalars in nested results by name, such as `outer/inner`."""
    flat: dict[str, object] = {}
    for key, value in logs.items():
        if isinstance(value, Mapping):
            flat.update(flat_scalars(value, f"{prefix}{key}/"))
        elif np.ndim(value) == 0:
            flat[f"{prefix}{key}"] = value
    return flat


def scalars(logs: Mapping[str, object]) -> dict[str, float]:
    """Returns the values in nested results that are plain numbers, by name as `flat_scalars`."""
    numbers = {}
    for name, value in flat_scalars(logs).items():
        with contextlib.suppress(TypeError, ValueError):
            numbers[name] = float(value)
    return numbers


def nested_scalars(logs: Mapping[str, object]) -> dict[str, object]:
    """Returns the scalars in nested results, with the same nesting."""
    nested = {
        name: nested_scalars(value) for name, value in logs.items() if isinstance(value, Mapping)
    }
    return {**{name: value for name, value in logs.items() if is_scalar(value)}, **nested}


def is_scalar(value: Any) -> bool:
    """Returns whether a value is a scalar."""
    return not isinstance(value, Mapping) and np.ndim(value) == 0
