"""Random draws inside a step as a function of (seed, step, replica, piece, call number).

So a run that is stopped and resumed draws the same dropout masks as a run that never stopped.

    with keyed_draws_scope(seed, step, replica):
        outputs = model(inputs, training=True)
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import FunctionType

import tensorflow as tf

from orbit_runner.determinism.graph_keys import Stream
from orbit_runner.determinism.keys import step_key
from orbit_runner.determinism.op_patches import install_patches
from orbit_runner.determinism.stateless_ops import Draw


class _Streams(threading.local):
    """Per thread, because `MirroredStrategy` traces each replica in a separate thread."""

    def __init__(self) -> None:
        self.active: list[Stream] = []


_streams = _Streams()


@contextlib.contextmanager
def keyed_draws_scope(
    seed: int,
    step: tf.Tensor | int | Callable[[], tf.Tensor],
    replica: tf.Tensor | int,
    purpose: str = "train",
) -> Iterator[None]:
    """Makes each random draw of TensorFlow in a `with` block a function of its key.

    The key is (seed, purpose, step, replica, number of the call in the block), and the iteration
    for draws in a loop. `step` and `replica` are integer scalars of the graph in which the block is
    entered. `step` can also be a function that returns one; it is called in that graph at the first
    draw. Neither is read before the first draw, and nothing is done if there are no draws.
    `purpose` separates draws for different uses, such as training and evaluation. Raises
    `RuntimeError` if the random ops of this TensorFlow cannot be replaced.
    """
    install_patches(_next_draw, _keyed_iteration_scope)

    def make_key() -> tf.Tensor:
        # A variable is also callable, but it is not a function that returns a step.
        made = step() if isinstance(step, FunctionType) else step
        return step_key(seed, purpose, made, replica)

    with _stream_scope(Stream(make_key, _call_key)):
        yield


@contextlib.contextmanager
def keyed_piece_scope(index: tf.Tensor | int) -> Iterator[None]:
    """Adds an index to the keys of the draws in a `with` block, and restarts the call numbers at 0.

    Does nothing outside of `keyed_draws_scope`. Two blocks with the same index draw the same
    values. `index` is an integer scalar, such as the number of a piece of a batch in gradient
    accumulation.
    """
    outer = _current_stream()
    if outer is None:
        yield
        return
    with _stream_scope(Stream(lambda: outer.piece_key(index), _call_key)):
        yield


@contextlib.contextmanager
def _keyed_iteration_scope(index: tf.Tensor) -> Iterator[None]:
    outer = _current_stream()
    if outer is None:
        yield
        return
    with _stream_scope(Stream(lambda: outer.calls().child_key(index), _call_key)):
        yield


@contextlib.contextmanager
def _stream_scope(stream: Stream) -> Iterator[None]:
    _streams.active.append(stream)
    try:
        yield
    finally:
        _streams.active.pop()


def _current_stream() -> Stream | None:
    if not _streams.active or not _streams.active[-1].contains_current_graph():
        return None
    return _streams.active[-1]


def _next_draw() -> Draw | None:
    stream = _current_stream()
    if stream is None:
        return None
    calls = stream.calls()
    return Draw(calls.key, calls.next())


def _call_key() -> tf.Tensor:
    stream = _current_stream()
    if stream is not None:
        return stream.calls().child_key()
    # A function that was traced in a scope is called outside of one: draw a random key.
    drawn = tf.random.uniform([1], tf.int64.min, tf.int64.max, tf.int64)
    return tf.bitcast(drawn, tf.uint64)
