"""Replaces gradients that TensorFlow does not compile with XLA, or not with deterministic ops.

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

# TensorFlow looks up gradients here. Registering one a second time is an error.
from tensorflow.python.framework.ops import gradient_registry

from orbit_runner.determinism.max_pooling import replace_max_pool_gradient
from orbit_runner.determinism.resizing import replace_nearest_gradient

# From an op and the gradient of its output to the gradients of its inputs; to None if the
# replacement does not support the op.
Replacement = Callable[[Any, tf.Tensor], list[tf.Tensor | None] | None]
_REPLACEMENTS: dict[str, Replacement] = {
    "MaxPool": replace_max_pool_gradient,  # The op of 1-D pooling, too.
    "MaxPoolV2": replace_max_pool_gradient,
    "MaxPool3D": replace_max_pool_gradient,
    "ResizeNearestNeighbor": replace_nearest_gradient,
}


class _State(threading.local):
    """Per thread, because `MirroredStrategy` traces each replica in a separate thread."""

    is_active = False


_state = _State()


@contextlib.contextmanager
def compilable_gradients_scope() -> Iterator[None]:
    """Replaces the gradients that are traced in a `with` block by ones that XLA compiles."""
    _install_replacements()
    was_active = _state.is_active
    _state.is_active = True
    try:
        yield
    finally:
        _state.is_active = was_active


@functools.cache
def _install_replacements() -> None:
    registered = gradient_registry._registry
    for name, replacement in _REPLACEMENTS.items():
        if "type" not in registered.get(name, {}):
            raise RuntimeError(
                f"TensorFlow {tf.__version__} has no gradient of {name} to replace, which is "
                "needed for deterministic ops under XLA; install a TensorFlow version that "
                "orbit_runner supports."
            )
        registered[name]["type"] = _patch_gradient(registered[name]["type"], replacement)


def _patch_gradient(original: Any, replacement: Replacement) -> Any:
    @functools.wraps(original)
    def compute_gradient(op: Any, grad: tf.Tensor) -> Any:
        gradients = replacement(op, grad) if _state.is_active else None
        if gradients is None:
            return original(op, grad)
        return gradients[0] if len(gradients) == 1 else gradients

    return compute_gradient
