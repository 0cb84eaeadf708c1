"""The functions with which orders and draws compute: once for NumPy, once for TensorFlow.

An order must be known in two places: in the graph, which makes the batches, and in commands that do
not import TensorFlow. So the code of an order is written once, for arrays of either kind, with
Python's operators and the functions of `Arrays`. The array API standard calls such a set of
functions a namespace, and variables that hold one `xp`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

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
    argsort: _Function
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
