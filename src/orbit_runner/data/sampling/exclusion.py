"""The order of examples without some of them: the others keep their order and move up."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from orbit_runner.data.sampling.index_sampler import IndexSampler
from orbit_runner.data.sampling.mixture import Mixture
from orbit_runner.data.sampling.mixture_sampler import MixtureSampler
from orbit_runner.data.sampling.numpy_exclusion import NO_EXAMPLES
from orbit_runner.data.table import stored_tensor


def make_sampler(
    size: int,
    seed: int,
    shuffle: bool = True,
    excluded: np.ndarray = NO_EXAMPLES,
    mixture: Mixture | None = None,
) -> IndexSampler | ExcludingSampler | MixtureSampler:
    """Returns the order of `size` examples without `excluded`, int64 [k], ascending.

    If `mixture` is given, it determines the order; it must not contain excluded examples.
    """
    if mixture is not None:
        return MixtureSampler(mixture, seed, shuffle)
    sampler = IndexSampler(size, seed, shuffle)
    return ExcludingSampler(sampler, excluded) if len(excluded) else sampler


class ExcludingSampler:
    """The order of an `IndexSampler` without some examples, as a function of (seed, position).

    `excluded`, int64 [k], are their indices, ascending. An epoch is shorter by k examples.
    """

    def __init__(self, sampler: IndexSampler, excluded: np.ndarray) -> None:
        self.size = sampler.size - len(excluded)
        self._sampler, self._excluded = sampler, stored_tensor(excluded)

    def __call__(self, positions: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns example indices, int64 [b], and their epochs, like an `IndexSampler`."""
        epochs = positions // self.size
        places = self._skip_gaps(positions - epochs * self.size, epochs)
        return self._sampler.examples(places, epochs), epochs

    def _skip_gaps(self, places: tf.Tensor, epochs: tf.Tensor) -> tf.Tensor:
        if not self._sampler.shuffle:
            return skip_gaps(places, self._excluded)

        # A loop over the epochs, whose number need not be known when the graph is compiled.
        def skip_in_epoch(epoch: tf.Tensor, found: tf.Tensor) -> list[tf.Tensor]:
            gaps = tf.sort(self._sampler.places(self._excluded, epoch))
            return [epoch + 1, tf.where(epochs == epoch, skip_gaps(places, gaps), found)]

        last = tf.reduce_max(epochs)
        _, found = tf.while_loop(
            lambda epoch, _: epoch <= last, skip_in_epoch, [tf.reduce_min(epochs), places]
        )
        return found


def skip_gaps(places: tf.Tensor, gaps: tf.Tensor) -> tf.Tensor:
    """Returns the same as `numpy_exclusion.skip_gaps`: int64 [b]."""
    below = gaps - tf.range(tf.size(gaps, tf.int64))
    return places + tf.searchsorted(below, places, side="right", out_type=tf.int64)


def close_gaps(places: tf.Tensor, gaps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the places that are not gaps, and their places without the gaps: int64 [m] each.

    `places` of the whole epoch, int64 [b], and `gaps`, int64 [k], are ascending.
    """
    below, upto = (
        tf.searchsorted(gaps, places, side=side, out_type=tf.int64) for side in ("left", "right")
    )
    others = tf.equal(below, upto)
    kept = tf.boolean_mask(places, others)
    return kept, kept - tf.boolean_mask(below, others)
