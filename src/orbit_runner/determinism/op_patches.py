"""Replaces TensorFlow's stateful random ops, once per process."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from orbit_runner.determinism.stateless_ops import REPLACEMENTS, Draw
from orbit_runner.tf_internals import replace_functions, takes_pfor_config

_lock = threading.Lock()
_installed = False


# Maps the number of an iteration of `tf.vectorized_map`, int32 scalar, to its context.
IterationScope = Callable[[tf.Tensor], AbstractContextManager[None]]


def install_patches(next_draw: Callable[[], Draw | None], iteration_scope: IterationScope) -> None:
    """Installs the replacements; only the first call has an effect.

    `next_draw` returns what determines the next draw, or None if the original op should be used.
    `iteration_scope` returns the context of an iteration of `tf.vectorized_map`.
    """
    global _installed
    with _lock:
        if _installed:
            return
        wrappers = {
            name: functools.partial(_patch_op, replacement=replacement, next_draw=next_draw)
            for name, replacement in REPLACEMENTS.items()
        }
        loop = functools.partial(_patch_vectorized, iteration_scope=iteration_scope)
        replace_functions({**wrappers, "vectorized_loop": loop})
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

        takes_config = takes_pfor_config(loop_fn)
        return original(body_with_config if takes_config else body, *args, **kwargs)

    return patched_pfor
