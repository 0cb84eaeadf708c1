"""Items that a user has not chosen, found by their rank: no draw has to be thrown away."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from orbit_runner.data.table import on_cpu


class Unchosen:
    """For each user, the items that are none of the user's, in ascending order.

    Of the sorted choices c_0 < c_1 < … of a user, c_k has c_k - k other items below it. So the
    r-th item that was not chosen is r + k, with k the number of choices for which c_k - k ≤ r: one
    binary search over the choices of all users, each user's above those of the one before.
    """

    def __init__(self, users: np.ndarray, items: np.ndarray, num_users: int, num_items: int):
        """Sorts out the tables.

        Args:
            users: The user of each choice, [n], ascending.
            items: The item of each choice, [n], ascending for each user, none twice.
            num_users: One more than the largest user.
            num_items: One more than the largest item.
        """
        counts = np.bincount(users, minlength=num_users)
        starts = np.concatenate([[0], np.cumsum(counts)])
        ranks = np.arange(len(users)) - starts[users]
        self._stride = num_items + 1
        # Half the bytes make the search more than twice as fast: it waits for memory.
        self._dtype = np.uint32 if num_users * self._stride < 2**32 else np.int64
        keys = users.astype(np.int64) * self._stride + items - ranks
        self._keys = on_cpu(keys.astype(self._dtype))
        self._starts = on_cpu(starts)
        self._free = on_cpu((num_items - counts).astype(np.int64))

    def count(self, users: tf.Tensor) -> tf.Tensor:
        """Returns how many items each user has not chosen.

        Args:
            users: Integers [b].

        Returns:
            int64 [b].
        """
        return tf.gather(self._free, users)

    def __call__(self, users: tf.Tensor, ranks: tf.Tensor) -> tf.Tensor:
        """Looks up items that were not chosen.

        Args:
            users: Integers [b].
            ranks: int64 [b], 0 to the count of the user - 1.

        Returns:
            Items, int64 [b].
        """
        wanted = tf.cast(tf.cast(users, tf.int64) * self._stride + ranks, self._dtype)
        below = tf.searchsorted(
            self._keys[tf.newaxis], wanted[tf.newaxis], side="right", out_type=tf.int64
        )[0]
        return ranks + below - tf.gather(self._starts, users)
