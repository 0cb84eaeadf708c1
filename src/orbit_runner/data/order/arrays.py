"""The functions with which orders and draws compute: for NumPy here, for tensors in `tf_arrays.py`.

An order must be known in two places: in the graph, which makes the batches, and in commands that do
not import TensorFlow. So the code of an order is written once, for arrays of either kind, with
Python's operators and the functions of `Arrays`. The array API standard calls such a set of
functions a namespace, and variables that hold one `xp`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# A NumPy array, a tensor, or a number.
Array = Any
# From values, lefts, rights and keys, all uint64, to the values after one pass.
Network = Callable[[Array, Array, Array, Array], Array]

_Function = Callable[..., Array]


@dataclasses.dataclass(frozen=True)
class Arrays:
    """Functions of arrays of one kind. Those without a comment are NumPy's with the same name."""

    # From a NumPy array to one that is stored once, however many graphs read it.
    store: _Function
    uint64: _Function  # Converts a number or an array.
    int64: _Function
    bitwise_xor: _Function
    right_shift: _Function
    where: _Function
    take: _Function
    arange: _Function
    sort: _Function
    invert_permutation: _Function  # That of TensorFlow.
    cumsum: _Function
    zeros_like: _Function
    # From values in ascending order and others to how many values are at most each of the others.
    count_at_most: _Function
    # From f, n and some values: `values = f(number, *values)` for each even number below n.
    repeat: Callable[..., Sequence[Array]]
    # From a network, values, limits, lefts, rights and keys: applies the network to each value
    # until the result is below its limit. A value that is not below its limit does not change.
    # All arguments are uint64 and broadcast; the result is int64.
    walk_cycles: _Function
    # From f, values and epochs, int64 [b]: f(value, epoch) for each value.
    map_epochs: _Function


_NUMPY_TYPES = (np.ndarray, np.generic, int)


def namespace_of(*values: Array) -> Arrays:
    """Returns the functions for some values: those of TensorFlow if one of them is a tensor."""
    if all(isinstance(value, _NUMPY_TYPES) for value in values):
        return NUMPY
    return _of_tensors()


@functools.cache  # AutoGraph does not convert such functions, and would warn about the import.
def _of_tensors() -> Arrays:
    # By name, because it imports this module.
    arrays: Arrays = importlib.import_module("orbit_runner.data.order.tf_arrays").TENSORFLOW
    return arrays


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
    invert_permutation=lambda values: np.argsort(values, kind="stable"),
    cumsum=np.cumsum,
    zeros_like=np.zeros_like,
    count_at_most=lambda ascending, values: np.searchsorted(ascending, values, side="right"),
    repeat=_repeat,
    walk_cycles=_walk_cycles,
    map_epochs=_map_epochs,
)
