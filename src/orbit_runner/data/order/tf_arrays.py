"""The functions of `Arrays` for tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from orbit_runner.data.order.arrays import Array, Arrays, Network
from orbit_runner.data.stored_tensor import stored_tensor


def _uint64(values: Array) -> tf.Tensor:
    if tf.is_tensor(values):
        return tf.cast(values, tf.uint64)
    return tf.constant(np.asarray(values).astype(np.uint64))


def _repeat(
    function: Callable[..., Sequence[tf.Tensor]], count: int, *values: tf.Tensor
) -> Sequence[tf.Tensor]:
    # A loop keeps the graph small, because it is traced at every start.
    _, *results = tf.while_loop(
        lambda number, *_: number < np.uint64(count),
        lambda number, *rest: [number + np.uint64(2), *function(number, *rest)],
        [_uint64(0), *values],
    )
    return results


def _walk_cycles(
    network: Network,
    start: tf.Tensor,
    limits: tf.Tensor,
    lefts: tf.Tensor,
    rights: tf.Tensor,
    keys: tf.Tensor,
) -> tf.Tensor:
    inside = start < limits

    # This loop includes the first pass, which also keeps the graph small.
    def apply_network(values: tf.Tensor, is_first: tf.Tensor) -> list[tf.Tensor | bool]:
        todo = is_first | (values >= limits)
        return [tf.where(todo, network(values, lefts, rights, keys), values), False]

    values, _ = tf.while_loop(
        lambda values, is_first: is_first | tf.reduce_any(inside & (values >= limits)),
        apply_network,
        [start, True],
    )
    return tf.cast(tf.where(inside, values, start), tf.int64)


def _map_epochs(
    function: Callable[..., tf.Tensor], values: tf.Tensor, epochs: tf.Tensor
) -> tf.Tensor:
    # A loop over the epochs, whose number need not be known when the graph is compiled.
    def apply_to_epoch(epoch: tf.Tensor, results: tf.Tensor) -> list[tf.Tensor]:
        return [epoch + 1, tf.where(epochs == epoch, function(values, epoch), results)]

    last = tf.reduce_max(epochs)
    _, results = tf.while_loop(
        lambda epoch, _: epoch <= last, apply_to_epoch, [tf.reduce_min(epochs), values]
    )
    return results


TENSORFLOW = Arrays(
    store=stored_tensor,
    uint64=_uint64,
    int64=lambda values: tf.cast(values, tf.int64),
    bitwise_xor=tf.bitwise.bitwise_xor,
    right_shift=lambda values, bits: tf.bitwise.right_shift(values, np.uint64(bits)),
    where=tf.where,
    take=tf.gather,
    arange=lambda count: tf.range(count, dtype=tf.int64),
    sort=tf.sort,
    invert_permutation=tf.math.invert_permutation,
    cumsum=tf.cumsum,
    zeros_like=tf.zeros_like,
    count_at_most=lambda ascending, values: tf.searchsorted(
        ascending, values, side="right", out_type=tf.int64
    ),
    repeat=_repeat,
    walk_cycles=_walk_cycles,
    map_epochs=_map_epochs,
)
