"""Random draws inside a step as a function of (seed, step, replica, piece, call number).

A run that is killed and goes on later then draws the same dropout masks as one that never stopped.

    with keyed_draws(seed, step, replica):
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
from orbit_runner.determinism.op_patches import install
from orbit_runner.determinism.stateless_ops import Draw


class _Streams(threading.local):
    """Of this thread, since a `MirroredStrategy` traces each replica in one of its own."""

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
    """Makes each draw of TensorFlow in a with block a function of its key.

    The key is (seed, purpose, step, replica, number of the call in the block), and for draws in a
    loop its turns. Neither `step` nor `replica` is read before the first draw, and nothing is done
    at all where there is none.

    Args:
        seed: Any integer.
        step: Integer scalar, of the graph in which the block is entered; or what makes it at the
            first draw, in that graph.
        replica: Integer scalar, as `step`.
        purpose: Keeps draws for different ends apart, such as training and evaluation.

    Yields:
        Nothing.

    Raises:
        RuntimeError: This TensorFlow cannot be made to draw with keys.
    """
    install(_next_draw, _keyed_turn_scope)

    def key() -> tf.Tensor:
        # A variable can be called too, but is no function that makes a step.
        made = step() if isinstance(step, FunctionType) else step
        return step_key(seed, purpose, made, replica)

    with _active(Stream(key, _call_key)):
        yield


@contextlib.contextmanager
def keyed_piece_scope(index: tf.Tensor | int) -> Iterator[None]:
    """Adds a counter to the keys of the draws in a with block, whose calls are numbered anew.

    Does nothing outside of `keyed_draws_scope`. Two blocks with the same index draw the same.

    Args:
        index: Integer scalar, such as the number of a piece of an accumulated batch.

    Yields:
        Nothing.
    """
    outer = _stream()
    if outer is None:
        yield
        return
    with _active(Stream(lambda: outer.piece(index), _call_key)):
        yield


@contextlib.contextmanager
def _keyed_turn_scope(index: tf.Tensor) -> Iterator[None]:
    outer = _stream()
    if outer is None:
        yield
        return
    with _active(Stream(lambda: outer.calls().below(index), _call_key)):
        yield


@contextlib.contextmanager
def _active(stream: Stream) -> Iterator[None]:
    _streams.active.append(stream)
    try:
        yield
    finally:
        _streams.active.pop()


def _stream() -> Stream | None:
    if not _streams.active or not _streams.active[-1].reaches_here():
        return None
    return _streams.active[-1]


def _next_draw() -> Draw | None:
    stream = _stream()
    if stream is None:
        return None
    calls = stream.calls()
    return Draw(calls.key, calls.next())


def _call_key() -> tf.Tensor:
    stream = _stream()
    if stream is not None:
        return stream.calls().below()
    # A function that was traced with a stream is called without one: it draws as it always did.
    drawn = tf.random.uniform([1], tf.int64.min, tf.int64.max, tf.int64)
    return tf.bitcast(drawn, tf.uint64)
