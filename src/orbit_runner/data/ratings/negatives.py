"""Items that a user has no interaction with, found by their rank, so that no draw is rejected."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from orbit_runner.data.stored_tensor import SortedTable, stored_tensor


class NegativeItems:
    """The items that each user has no interaction with, in ascending order.

    Let c_0 < c_1 < … be the items that a user has interacted with. Below c_k there are c_k - k
    other items. So the r-th other item is r + k, where k is the number of items for which c_k - k ≤
    r. One binary search over the items of all users finds k, because the keys of each user are
    above those of the user before.

    `users` and `items`, both [n], must be sorted by user and then by item, without duplicates.
    """

    def __init__(self, users: np.ndarray, items: np.ndarray, num_users: int, num_items: int):
        counts = np.bincount(users, minlength=num_users)
        starts = np.concatenate([[0], np.cumsum(counts)])
        ranks = np.arange(len(users)) - starts[users]
        self._stride = num_items + 1
        # Keys of half the size make the search more than twice as fast, because memory limits it.
        self._dtype = np.uint32 if num_users * self._stride < 2**32 else np.int64
        keys = users.astype(np.int64) * self._stride + items - ranks
        self._keys = SortedTable(keys.astype(self._dtype))
        self._starts = stored_tensor(starts)
        self._free = stored_tensor((num_items - counts).astype(np.int64))

    def count(self, users: tf.Tensor) -> tf.Tensor:
        """Returns the number of items that each user has no interaction with: int64 [b].

        `users` are integers [b].
        """
        return tf.gather(self._free, users)

    def __call__(self, users: tf.Tensor, ranks: tf.Tensor) -> tf.Tensor:
        """Returns the item of each rank among the user's items without interaction: int64 [b].

        `users` are integers [b]. `ranks`, int64 [b], must be below the user's `count`.
        """
        wanted = tf.cast(tf.cast(users, tf.int64) * self._stride + ranks, self._dtype)
        below = self._keys.count_at_most(wanted)
        return ranks + below - tf.gather(self._starts, users)
