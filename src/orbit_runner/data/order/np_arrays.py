"""The functions of `Arrays` for NumPy, and the choice between NumPy and TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from orbit_runner.data.order.arrays import Array, Arrays, Network

_NUMPY_TYPES = (np.ndarray, np.generic, int)


def namespace_of(*values: Array) -> Arrays:
    """Returns the functions for some values: those of TensorFlow if one of them is a tensor."""
    if all(isinstance(value, _NUMPY_TYPES) for value in values):
        return NUMPY
    from orbit_runner.data.order.tf_arrays import TENSORFLOW

    return TENSORFLOW


def _uint64(values: Array) -> Array:
    return np.asarray(values).astype(np.uint64)[()]


def _int64(values: Array) -> Array:
    return np.asarray(values).astype(np.int64)[()]


def _repeat(
    function: Callable[..., tuple[Array, ...]], count: int, *values: Array
) -> Sequence[Array]:
    with np.errstate(over="ignore"):  # NumPy warns if a scalar overflows.
        for number in range(0, count, 2):
            values = function(np.uint64(number), *values)
    return values


def _walk_cycles(network: Network, *columns: Array) -> np.ndarray:
    broadcast = np.broadcast_arrays(*columns)
    start, limits, lefts, rights, keys = (column.reshape(-1) for column in broadcast)
    values = start.copy()
    todo = np.flatnonzero(start < limits)
    while len(todo):
        values[todo] = network(values[todo], lefts[todo], rights[todo], keys[todo])
        todo = todo[values[todo] >= limits[todo]]
    return values.astype(np.int64).reshape(broadcast[0].shape)


def _map_epochs(function: Callable[..., Array], values: Array, epochs: Array) -> np.ndarray:
    values, epochs = np.broadcast_arrays(values, epochs)
    result = np.empty(values.shape, np.int64)
    for epoch in np.unique(epochs):
        mask = epochs == epoch
        result[mask] = function(values[mask], epoch)
    return result


NUMPY = Arrays(
    store=lambda array: array,
    uint64=_uint64,
    int64=_int64,
    bitwise_xor=np.bitwise_xor,
    right_shift=lambda values, bits: values >> np.uint64(bits),
    where=np.where,
    take=np.take,
    arange=lambda count: np.arange(count, dtype=np.int64),
    sort=np.sort,
    argsort=np.argsort,
    cumsum=np.cumsum,
    zeros_like=np.zeros_like,
    count_at_most=lambda ascending, values: np.searchsorted(ascending, values, side="right"),
    repeat=_repeat,
    walk_cycles=_walk_cycles,
    map_epochs=_map_epochs,
)
