"""Replaces gradients that TensorFlow cannot compute with deterministic ops, on a GPU or with XLA.

They are registered for ops and not for layers, so all models have the replacements: ours, those of
Model Garden and those of users.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from orbit_runner.determinism.frozen_normalization import replace_frozen_gradient
from orbit_runner.determinism.max_pooling import replace_max_pool_gradient
from orbit_runner.determinism.resizing import replace_nearest_gradient
from orbit_runner.tf_internals import MissingInternal, gradients_by_op

# From an op and the gradients of its outputs to the gradients of its inputs; to None if the
# replacement does not support the op.
Replacement = Callable[..., list[tf.Tensor | None] | None]
_REPLACEMENTS: dict[str, Replacement] = {
    "MaxPool": replace_max_pool_gradient,  # The op of 1-D pooling, too.
    "MaxPoolV2": replace_max_pool_gradient,
    "MaxPool3D": replace_max_pool_gradient,
    "ResizeNearestNeighbor": replace_nearest_gradient,
    "FusedBatchNorm": replace_frozen_gradient,
    "FusedBatchNormV2": replace_frozen_gradient,
    "FusedBatchNormV3": replace_frozen_gradient,
}
_BATCH_NORM = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
# The ops whose gradients have no deterministic kernel in programs of XLA, and on a GPU without it.
WITH_XLA = frozenset(_REPLACEMENTS) - _BATCH_NORM
ON_GPUS = _BATCH_NORM | {"ResizeNearestNeighbor"}


class _State(threading.local):
    """Per thread, because `MirroredStrategy` traces each replica in a separate thread."""

    replaced: frozenset[str] = frozenset()


_state = _State()


@contextlib.contextmanager
def replaced_gradients_scope(ops: frozenset[str]) -> Iterator[None]:
    """Replaces the gradients of some types of ops, if they are traced in a `with` block."""
    if ops:
        _install_replacements()
    before = _state.replaced
    _state.replaced = ops
    try:
        yield
    finally:
        _state.replaced = before


@functools.cache
def _install_replacements() -> None:
    # TensorFlow looks up gradients here. Registering one a second time is an error.
    for name, replacement in _REPLACEMENTS.items():
        registered = gradients_by_op.get(name, {})
        if "type" not in registered:
            raise MissingInternal("tensorflow", f"gradient of {name} to replace")
        registered["type"] = _patch_gradient(name, registered["type"], replacement)


def _patch_gradient(name: str, original: Any, replacement: Replacement) -> Any:
    @functools.wraps(original)
    def compute_gradient(op: Any, *grads: tf.Tensor) -> Any:
        gradients = replacement(op, *grads) if name in _state.replaced else None
        if gradients is None:
            return original(op, *grads)
        return gradients[0] if len(gradients) == 1 else gradients

    return compute_gradient
