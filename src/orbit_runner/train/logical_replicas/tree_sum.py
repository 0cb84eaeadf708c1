"""Sums terms in one fixed binary tree, whichever devices compute them.

Neighbors are added pairwise, then neighboring sums, and so on; a last term without a neighbor moves
up unchanged. Floating-point addition is not associative, so the order determines the last bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

Tensors = list[tf.Tensor]


def tree_sum(rows: tf.Tensor) -> tf.Tensor:
    """Returns the sum of the rows of a tensor [n, …], n > 0, whose first size is static."""
    count = rows.shape[0]
    while count > 1:
        paired = count // 2 * 2
        # Of slices, not of single rows: TensorFlow would merge additions of equal shapes into one
        # op, which adds from left to right.
        sums = rows[0:paired:2] + rows[1:paired:2]
        rows = sums if paired == count else tf.concat([sums, rows[paired:]], axis=0)
        count = rows.shape[0]
    return rows[0]


def block_size(count: int) -> int:
    """Returns the largest power of two that divides `count`.

    If each device holds `count` neighboring terms, each aligned block of this size is a subtree.
    """
    return count & -count


def block_sum(
    compute: Callable[[tf.Tensor], Tensors],
    first: tf.Tensor,
    size: int,
    like: Sequence[tf.TensorSpec],
) -> Tensors:
    """Returns the sum of `compute(first)` to `compute(first + size - 1)` in the tree.

    Computes one term after another, and keeps one sum per level of the tree. `first` is an int32
    scalar, `size` a power of two, and `like` has the static shapes of the terms.
    """
    if size == 1:
        return compute(first)
    half = size // 2

    def add(turn: tf.Tensor, total: Tensors) -> tuple[tf.Tensor, Tensors]:
        found = block_sum(compute, first + turn * half, half, like)
        return turn + 1, [one + other for one, other in zip(total, found, strict=True)]

    # A loop of two iterations, not two calls, so that the step is traced once and the memory of the
    # first half is freed before the second one begins.
    _, total = tf.while_loop(
        lambda turn, _: turn < 2,
        add,
        (tf.constant(0), [_negative_zeros(spec) for spec in like]),
        parallel_iterations=1,
    )
    return list(total)


def _negative_zeros(spec: tf.TensorSpec) -> tf.Tensor:
    # The sum of 0.0 and -0.0 is 0.0, so only -0.0 leaves every number as it is.
    zero = -0.0 if spec.dtype.is_floating else 0
    return tf.fill(spec.shape, tf.constant(zero, spec.dtype))
