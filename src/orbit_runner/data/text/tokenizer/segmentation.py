"""The most probable way to cut text into pieces, in TensorFlow ops, for many sentences at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from orbit_runner.data.text.source import UNKNOWN
from orbit_runner.data.text.tokenizer.trie import DEAD, NODE_STRIDE, Trie

_NONE = -1


def best_pieces(trie: Trie, characters: tf.Tensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """Finds the pieces with the largest sum of scores (Kudo 2018, equation 4; Viterbi).

    Sums are of float32 from the left, and of equal ones the one with the longer last piece counts,
    as in SentencePiece, so that the pieces are the same.

    Args:
        trie: The pieces.
        characters: Code points, int32 [b, n], of any value behind the end of a row.
        lengths: How many of a row count, int64 [b].

    Returns:
        Numbers of pieces, int32 [b, (k)]; unknown characters side by side are one.
    """
    # No column at all would be a case of its own.
    characters = tf.pad(characters, [[0, 0], [0, 1]])
    ids, sizes = _best_endings(trie, _starting_pieces(trie, characters))
    rows = _backwards(ids, sizes, tf.cast(lengths, tf.int32))
    before = tf.pad(rows, [[0, 0], [1, 0]], constant_values=_NONE)[:, :-1]
    repeated = tf.equal(rows, UNKNOWN) & tf.equal(before, UNKNOWN)
    return tf.ragged.boolean_mask(rows, tf.not_equal(rows, _NONE) & ~repeated)


def _starting_pieces(trie: Trie, characters: tf.Tensor) -> tf.Tensor:
    """Returns the piece of each length that starts at each place, or none; int32 [n, b, longest].

    A character that is no piece by itself is the unknown piece.
    """
    edges, children = tf.constant(trie.edges), tf.constant(trie.children)
    places = tf.transpose(tf.cast(characters, tf.int64))
    padded, count = tf.pad(places, [[0, trie.longest], [0, 0]]), tf.shape(places)[0]
    nodes, found = tf.zeros_like(places), []
    for offset in range(trie.longest):
        keys = nodes * NODE_STRIDE + padded[offset : offset + count]
        index = tf.searchsorted(edges, tf.reshape(keys, [-1]))
        index = tf.reshape(tf.minimum(index, len(trie.edges) - 1), tf.shape(keys))
        there = tf.equal(tf.gather(edges, index), keys)
        nodes = tf.where(there, tf.gather(children, index), np.int64(DEAD))
        found.append(tf.gather(tf.constant(trie.piece_of_node), nodes))
    found[0] = tf.where(tf.equal(found[0], _NONE), UNKNOWN, found[0])
    return tf.stack(found, axis=-1)


class _Ahead(NamedTuple):
    """The best way to each of the next places: of the sum, its last piece and that one's size."""

    sums: tf.Tensor
    ids: tf.Tensor
    sizes: tf.Tensor


_NO_WAY = _Ahead(np.float32(-np.inf), np.int32(_NONE), np.int32(0))


def _best_endings(trie: Trie, starting: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the last piece of the best way to behind each character, and its size; [n, b]."""
    count, rows = tf.shape(starting)[0], tf.shape(starting)[1]
    scores = tf.gather(tf.constant(trie.scores), tf.maximum(starting, 0))
    scores = tf.where(tf.equal(starting, _NONE), _NO_WAY.sums, scores)
    sizes = tf.range(1, trie.longest + 1)
    found = [tf.TensorArray(tf.int32, count, element_shape=[None]) for _ in range(2)]

    def step(place: tf.Tensor, here: tf.Tensor, old: _Ahead, found: list) -> tuple:
        new = _Ahead(here + scores[place], starting[place], sizes)
        better = new.sums > old.sums
        best = _Ahead(*(tf.where(better, a, b) for a, b in zip(new, old, strict=True)))
        found = [out.write(place, state[:, 0]) for out, state in zip(found, best[1:], strict=True)]
        ahead = _Ahead(*map(_advance, best, _NO_WAY))
        return place + 1, best.sums[:, :1], ahead, found

    ahead = _Ahead(*(tf.fill([rows, trie.longest], value) for value in _NO_WAY))
    start = (tf.constant(0), tf.zeros([rows, 1]), ahead, found)
    *_, found = tf.while_loop(lambda place, *_: place < count, step, start)
    ids, taken = (out.stack() for out in found)
    return ids, taken


def _advance(state: tf.Tensor, last: np.generic) -> tf.Tensor:
    return tf.pad(state[:, 1:], [[0, 0], [0, 1]], constant_values=last)


def _backwards(ids: tf.Tensor, sizes: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Follows the best ways from their ends; int32 [b, k], none in front of shorter ones."""
    ids, sizes = tf.transpose(ids), tf.transpose(sizes)
    found = tf.TensorArray(tf.int32, 0, dynamic_size=True, element_shape=[None])

    def step(places: tf.Tensor, found: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        # Where a row has come to its start, the first entry is read and not used.
        last, going = tf.maximum(places - 1, 0), places > 0
        piece = tf.gather(ids, last, batch_dims=1)
        left = places - tf.gather(sizes, last, batch_dims=1)
        found = found.write(found.size(), tf.where(going, piece, _NONE))
        return tf.where(going, left, 0), found

    _, found = tf.while_loop(
        lambda places, found: tf.reduce_any(places > 0) | (found.size() < 1), step, (lengths, found)
    )
    return tf.transpose(found.stack()[::-1])
