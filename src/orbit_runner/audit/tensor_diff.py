"""Finds which tensors of two checkpoints differ, and by how much."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from orbit_runner.checkpoint.fingerprint import CheckpointContent


@dataclasses.dataclass(frozen=True)
class LargestDifference:
    """The position at which two checkpoints differ most."""

    name: str
    index: tuple[int, ...]  # () in a scalar.
    left: float
    right: float
    difference: float  # Absolute; infinite if one of the values is NaN.


@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorDiff:
    """The differences between two checkpoints of a step."""

    step: int
    kind: str  # `weights`, or `state` if the weights are equal and other tensors differ.
    first: str  # The first tensor that differs, in the order of the layers.
    differing: int  # Number of tensors of the kind that differ.
    total: int  # Number of tensors of the kind.
    largest: LargestDifference | None = None  # None if no pair of tensors can be subtracted.


def compare_tensors(left: Path, right: Path, step: int) -> TensorDiff | None:
    """Compares the weights of two checkpoints, and the rest of the state if they are equal.

    Paths have no suffix. Returns None if nothing differs or if a checkpoint cannot be read. Holds
    one tensor of each checkpoint in memory at a time. Imports tensorflow.
    """
    import tensorflow as tf

    from orbit_runner.checkpoint.fingerprint import CheckpointContent

    try:
        pair = CheckpointContent(left), CheckpointContent(right)
        weights = {**pair[1].weights(), **pair[0].weights()}
        state = {key: _strip_attributes(key) for one in pair for key in one.state_keys()}
        return _compare("weights", weights, pair, step) or _compare("state", state, pair, step)
    except (OSError, ValueError, IndexError, RuntimeError, tf.errors.OpError):
        return None  # A run that is still training has removed it.


def _compare(
    kind: str, names: dict[str, str], pair: tuple[CheckpointContent, CheckpointContent], step: int
) -> TensorDiff | None:
    differing: list[str] = []
    largest: LargestDifference | None = None
    for key in sorted(names, key=_natural_sort_key):
        values = [one.tensor(key) if key in one.shapes else None for one in pair]
        if is_bitwise_equal(*values):
            continue
        differing.append(names[key])
        place = largest_difference(names[key], *values)
        if place and (largest is None or place.difference > largest.difference):
            largest = place
    if not differing:
        return None
    return TensorDiff(
        step=step, kind=kind, first=differing[0], differing=len(differing), total=len(names),
        largest=largest,
    )  # fmt: skip


def _natural_sort_key(key: str) -> list[tuple[int, str]]:
    """Returns a sort key that puts `layer_with_weights-10` after `layer_with_weights-9`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _split_digits(key)]


def _split_digits(key: str) -> Iterator[str]:
    return filter(None, re.split(r"(\d+)", key))


def _strip_attributes(key: str) -> str:
    return key.partition("/.ATTRIBUTES")[0]


def is_bitwise_equal(left: np.ndarray | None, right: np.ndarray | None) -> bool:
    """Returns whether two tensors have the same type, shape and bits; False if one is missing."""
    if left is None or right is None:
        return False
    a, b = np.asarray(left), np.asarray(right)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()


def largest_difference(
    name: str, left: np.ndarray | None, right: np.ndarray | None
) -> LargestDifference | None:
    """Returns where two tensors differ most; None if they cannot be subtracted."""
    if left is None or right is None:
        return None
    try:
        a, b = np.asarray(left).astype(np.float64), np.asarray(right).astype(np.float64)
    except (TypeError, ValueError):
        return None  # Strings.
    if a.shape != b.shape or not a.size:
        return None
    with np.errstate(invalid="ignore"):
        off = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    off = np.where(np.isnan(off), np.inf, off)
    index = np.unravel_index(int(np.argmax(off)), off.shape)
    place = tuple(int(one) for one in index)
    return LargestDifference(name, place, float(a[index]), float(b[index]), float(off[index]))
