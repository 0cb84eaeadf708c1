"""The rank of the held-out item of each user, in blocks that limit the memory, and its metrics."""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf

from orbit_runner.tasks.metrics import Ratio

Score = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]

# Pairs scored at once. NeuMF needs about one kilobyte for each.
BLOCK_PAIRS = 2**16


def _block_width(users: tf.Tensor, num_candidates: int, block_pairs: int) -> int | tf.Tensor:
    """Returns how many candidates are scored at once; a tensor for a batch of any size."""
    if users.shape[0] is not None:
        return max(1, min(num_candidates, block_pairs // users.shape[0]))
    count = block_pairs // tf.maximum(tf.shape(users)[0], 1)
    return tf.clip_by_value(count, 1, num_candidates)


def ranks_and_losses(
    score: Score,
    users: tf.Tensor,
    items: tf.Tensor,
    mask: tf.Tensor,
    *,
    num_negatives: int,
    block_pairs: int = BLOCK_PAIRS,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the number of candidates ahead of the first, and the loss, both float32 [b].

    `score` maps users and items, int32 [pairs], to logits, float32 [pairs]. `users` are int32 [b].
    `items` are the candidates, int32 [b, m], the held-out one first. `mask` is bool [b, m]: which
    candidates count. A candidate is ahead unless its score is below that of the first, so that ties
    and NaN count against the model.

    With k = `num_negatives`, the loss is (cross entropy of the first + k · mean cross entropy of
    the others) / (1 + k), in nats. It weighs the others as training does, so that the two losses
    are comparable.
    """
    first = score(users, items[:, 0])
    items, mask = items[:, 1:], mask[:, 1:]
    width = _block_width(users, items.shape[1], block_pairs)
    blocks = -(-items.shape[1] // width)
    padding = [[0, 0], [0, blocks * width - items.shape[1]]]
    items, mask = tf.pad(items, padding), tf.pad(mask, padding)

    def add_block(number: tf.Tensor, ahead: tf.Tensor, losses: tf.Tensor) -> tuple[tf.Tensor, ...]:
        columns = slice(number * width, (number + 1) * width)
        counts = mask[:, columns]
        pairs = tf.reshape(items[:, columns], [-1])
        logits = tf.reshape(score(tf.repeat(users, width), pairs), [-1, width])
        over = counts & tf.logical_not(logits < first[:, tf.newaxis])
        entropy = tf.where(counts, tf.nn.softplus(logits), 0.0)
        added = tf.reduce_sum(tf.cast(over, tf.float32), 1), tf.reduce_sum(entropy, 1)
        return number + 1, ahead + added[0], losses + added[1]

    _, ahead, losses = tf.while_loop(
        lambda number, *_: number < blocks,
        add_block,
        [tf.constant(0), tf.zeros_like(first), tf.zeros_like(first)],
        parallel_iterations=1,
    )
    count = tf.reduce_sum(tf.cast(mask, tf.float32), 1)
    mean = tf.math.divide_no_nan(losses, count)
    return ahead, (tf.nn.softplus(-first) + num_negatives * mean) / (1 + num_negatives)


class HitRatio(Ratio):
    """The share of users whose item is among the first k."""

    prefix = "hr"

    def __init__(self, k: int) -> None:
        super().__init__(f"{self.prefix}_at_{k}")
        self.k = k

    @tf.autograph.experimental.do_not_convert
    def update_state(self, ahead: tf.Tensor, weights: tf.Tensor) -> None:
        """Adds a batch.

        `ahead` is the number of items ahead of the relevant one, float32 [batch]. `weights` are
        float32 [batch].
        """
        gains = tf.where(ahead < self.k, self._gains(ahead), 0.0)
        self.add(tf.reduce_sum(gains * weights), tf.reduce_sum(weights))

    def _gains(self, ahead: tf.Tensor) -> tf.Tensor:
        return tf.ones_like(ahead)


class Ndcg(HitRatio):
    """The mean of 1 / log2(rank + 1) for items among the first k, and 0 for others.

    This is the normalized discounted cumulative gain of one relevant item: the ideal gain is 1.
    """

    prefix = "ndcg"

    def _gains(self, ahead: tf.Tensor) -> tf.Tensor:
        return math.log(2.0) / tf.math.log(ahead + 2.0)
