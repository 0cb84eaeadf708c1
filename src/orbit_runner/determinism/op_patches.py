"""Replaces TensorFlow's stateful random ops, once per process."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

# Only the modules of this package replace private parts of TensorFlow. Its public functions,
# and so Keras and Model Garden, look them up in their modules at each call. No public API is as
# low-level.
from tensorflow.python.ops.parallel_for import control_flow_ops as parallel_for

from orbit_runner.determinism.stateless_ops import REPLACEMENTS, Draw

_lock = threading.Lock()
_installed = False
_LOOPS = ("_pfor_impl", "_loop_fn_has_config")


# Maps the number of an iteration of `tf.vectorized_map`, int32 scalar, to its context.
IterationScope = Callable[[tf.Tensor], AbstractContextManager[None]]


def install_patches(next_draw: Callable[[], Draw | None], iteration_scope: IterationScope) -> None:
    """Installs the replacements; only the first call has an effect.

    `next_draw` returns what determines the next draw, or None if the original op should be used.
    `iteration_scope` returns the context of an iteration of `tf.vectorized_map`. Raises
    `RuntimeError` if this TensorFlow lacks one of the functions to replace.
    """
    global _installed
    with _lock:
        if _installed:
            return
        places = [(module, name) for module, name, _ in REPLACEMENTS]
        for module, name in [*places, *((parallel_for, name) for name in _LOOPS)]:
            if not hasattr(module, name):
                raise RuntimeError(
                    f"TensorFlow {tf.__version__} has no `{module.__name__}.{name}`, which is "
                    "needed for reproducible random numbers; install a TensorFlow version that "
                    "orbit_runner supports."
                )
        for module, name, replacement in REPLACEMENTS:
            setattr(module, name, _patch_op(getattr(module, name), replacement, next_draw))
        parallel_for._pfor_impl = _patch_vectorized(parallel_for._pfor_impl, iteration_scope)
        _installed = True


def _patch_op(original: Any, replacement: Any, next_draw: Callable[[], Draw | None]) -> Any:
    @functools.wraps(original)
    def draw_or_call(*args: Any, **kwargs: Any) -> Any:
        this = next_draw()
        return original(*args, **kwargs) if this is None else replacement(this, *args, **kwargs)

    return draw_or_call


def _patch_vectorized(original: Any, iteration_scope: IterationScope) -> Any:
    @functools.wraps(original)
    def patched_pfor(loop_fn: Any, *args: Any, **kwargs: Any) -> Any:
        def body(index: tf.Tensor) -> Any:
            with iteration_scope(index):
                return loop_fn(index)

        def body_with_config(index: tf.Tensor, pfor_config: Any) -> Any:
            with iteration_scope(index):
                return loop_fn(index, pfor_config=pfor_config)

        takes_config = parallel_for._loop_fn_has_config(loop_fn)
        return original(body_with_config if takes_config else body, *args, **kwargs)

    return patched_pfor
