"""Which tensors of two checkpoints differ, and by how much."""

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
class Largest:
    """The place at which two checkpoints differ most.

    Attributes:
        name: The tensor.
        index: The place in it; () in a scalar.
        left: The value in one checkpoint.
        right: The value in the other.
        difference: The absolute difference; infinite where one of them is no number.
    """

    name: str
    index: tuple[int, ...]
    left: float
    right: float
    difference: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorParting:
    """What differs between two checkpoints of a step.

    Attributes:
        step: The step.
        kind: `weights`, or `state` where the weights are equal and other tensors are not.
        first: The first tensor that differs, in the order of the layers.
        differing: How many differ.
        total: How many there are of the kind.
        largest: Where they differ most; None where no two can be subtracted.
    """

    step: int
    kind: str
    first: str
    differing: int
    total: int
    largest: Largest | None = None


def compare_tensors(left: Path, right: Path, step: int) -> TensorParting | None:
    """Compares the weights of two checkpoints, and the rest of the state where they are equal.

    One tensor of each is in memory at a time. Imports tensorflow.

    Args:
        left: The path of a checkpoint, without suffix.
        right: That of the other.
        step: Their step.

    Returns:
        What differs; None where nothing does, or one of them cannot be read (any more).
    """
    import tensorflow as tf

    from orbit_runner.checkpoint.fingerprint import CheckpointContent

    try:
        pair = CheckpointContent(left), CheckpointContent(right)
        weights = {**pair[1].weights(), **pair[0].weights()}
        state = {key: _short(key) for one in pair for key in one.state_keys()}
        return _compare("weights", weights, pair, step) or _compare("state", state, pair, step)
    except (OSError, ValueError, IndexError, RuntimeError, tf.errors.OpError):
        return None  # The run that goes on has removed it.


def _compare(
    kind: str, names: dict[str, str], pair: tuple[CheckpointContent, CheckpointContent], step: int
) -> TensorParting | None:
    differing: list[str] = []
    largest: Largest | None = None
    for key in sorted(names, key=_in_order):
        values = [one.tensor(key) if key in one.shapes else None for one in pair]
        if _same(*values):
            continue
        differing.append(names[key])
        place = _largest(names[key], *values)
        if place and (largest is None or place.difference > largest.difference):
            largest = place
    if not differing:
        return None
    return TensorParting(
        step=step, kind=kind, first=differing[0], differing=len(differing), total=len(names),
        largest=largest,
    )  # fmt: skip


def _in_order(key: str) -> list[tuple[int, str]]:
    """Sorts `layer_with_weights-10` after `layer_with_weights-9`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _parts(key)]


def _parts(key: str) -> Iterator[str]:
    return filter(None, re.split(r"(\d+)", key))


def _short(key: str) -> str:
    return key.partition("/.ATTRIBUTES")[0]


def _same(left: np.ndarray | None, right: np.ndarray | None) -> bool:
    if left is None or right is None:
        return False
    a, b = np.asarray(left), np.asarray(right)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()


def _largest(name: str, left: np.ndarray | None, right: np.ndarray | None) -> Largest | None:
    if left is None or right is None:
        return None
    try:
        a, b = np.asarray(left).astype(np.float64), np.asarray(right).astype(np.float64)
    except (TypeError, ValueError):
        return None  # Texts.
    if a.shape != b.shape or not a.size:
        return None
    with np.errstate(invalid="ignore"):
        off = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    off = np.where(np.isnan(off), np.inf, off)
    index = np.unravel_index(int(np.argmax(off)), off.shape)
    place = tuple(int(one) for one in index)
    return Largest(name, place, float(a[index]), float(b[index]), float(off[index]))
