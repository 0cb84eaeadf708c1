"""The most probable segmentation of text into pieces, for many sentences, in TensorFlow ops."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from orbit_runner.data.text.source import UNKNOWN
from orbit_runner.data.text.tokenizer.trie import DEAD, NODE_STRIDE, Trie

_NONE = -1


def best_pieces(trie: Trie, characters: tf.Tensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """Returns the pieces with the largest sum of scores: piece ids, int32 [b, (k)].

    `characters` are code points, int32 [b, n], with any values after the end of a row. `lengths`,
    int64 [b], are the numbers of characters of the rows. Adjacent unknown characters are one piece.

    This is the Viterbi algorithm for equation 4 of Kudo 2018. Sums are computed in float32 from the
    left, and of equal sums, the one with the longer last piece is used, so that the pieces are the
    same as those of SentencePiece.
    """
    # Padding avoids the special case of no columns.
    characters = tf.pad(characters, [[0, 0], [0, 1]])
    ids, sizes = _best_endings(trie, _starting_pieces(trie, characters))
    rows = _trace_back(ids, sizes, tf.cast(lengths, tf.int32))
    before = tf.pad(rows, [[0, 0], [1, 0]], constant_values=_NONE)[:, :-1]
    repeated = tf.equal(rows, UNKNOWN) & tf.equal(before, UNKNOWN)
    return tf.ragged.boolean_mask(rows, tf.not_equal(rows, _NONE) & ~repeated)


def _starting_pieces(trie: Trie, characters: tf.Tensor) -> tf.Tensor:
    """Returns the piece of each length that starts at each place, or -1: int32 [n, b, longest].

    A character that is not a piece is the unknown piece.
    """
    edges = tf.constant(trie.edges)
    children = tf.constant(trie.children)
    places = tf.transpose(tf.cast(characters, tf.int64))
    padded = tf.pad(places, [[0, trie.longest], [0, 0]])
    count = tf.shape(places)[0]
    nodes = tf.zeros_like(places)
    pieces = []
    for offset in range(trie.longest):
        keys = nodes * NODE_STRIDE + padded[offset : offset + count]
        index = tf.searchsorted(edges, tf.reshape(keys, [-1]))
        index = tf.reshape(tf.minimum(index, len(trie.edges) - 1), tf.shape(keys))
        exists = tf.equal(tf.gather(edges, index), keys)
        nodes = tf.where(exists, tf.gather(children, index), np.int64(DEAD))
        pieces.append(tf.gather(tf.constant(trie.piece_of_node), nodes))
    pieces[0] = tf.where(tf.equal(pieces[0], _NONE), UNKNOWN, pieces[0])
    return tf.stack(pieces, axis=-1)


class _Frontier(NamedTuple):
    """The best segmentations up to the next places: sums, last pieces and the pieces' sizes."""

    sums: tf.Tensor
    ids: tf.Tensor
    sizes: tf.Tensor


_UNREACHED = _Frontier(np.float32(-np.inf), np.int32(_NONE), np.int32(0))


def _best_endings(trie: Trie, starting: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the last pieces of the best segmentations up to each character, and sizes: [n, b]."""
    count, rows = tf.shape(starting)[0], tf.shape(starting)[1]
    scores = tf.gather(tf.constant(trie.scores), tf.maximum(starting, 0))
    scores = tf.where(tf.equal(starting, _NONE), _UNREACHED.sums, scores)
    sizes = tf.range(1, trie.longest + 1)
    arrays = [tf.TensorArray(tf.int32, count, element_shape=[None]) for _ in range(2)]

    def step(place: tf.Tensor, here: tf.Tensor, old: _Frontier, arrays: list) -> tuple:
        new = _Frontier(here + scores[place], starting[place], sizes)
        better = new.sums > old.sums
        best = _Frontier(*(tf.where(better, a, b) for a, b in zip(new, old, strict=True)))
        arrays = [
            out.write(place, state[:, 0]) for out, state in zip(arrays, best[1:], strict=True)
        ]
        ahead = _Frontier(*map(_shift_left, best, _UNREACHED))
        return place + 1, best.sums[:, :1], ahead, arrays

    ahead = _Frontier(*(tf.fill([rows, trie.longest], value) for value in _UNREACHED))
    start = (tf.constant(0), tf.zeros([rows, 1]), ahead, arrays)
    *_, arrays = tf.while_loop(lambda place, *_: place < count, step, start)
    ids, taken = (out.stack() for out in arrays)
    return ids, taken


def _shift_left(state: tf.Tensor, last: np.generic) -> tf.Tensor:
    return tf.pad(state[:, 1:], [[0, 0], [0, 1]], constant_values=last)


def _trace_back(ids: tf.Tensor, sizes: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Returns the pieces of the best segmentations: int32 [b, k], padded in front with -1."""
    ids, sizes = tf.transpose(ids), tf.transpose(sizes)
    pieces = tf.TensorArray(tf.int32, 0, dynamic_size=True, element_shape=[None])

    def step(places: tf.Tensor, pieces: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        # If a row has reached its start, the first entry is read but not used.
        last = tf.maximum(places - 1, 0)
        going = places > 0
        piece = tf.gather(ids, last, batch_dims=1)
        left = places - tf.gather(sizes, last, batch_dims=1)
        pieces = pieces.write(pieces.size(), tf.where(going, piece, _NONE))
        return tf.where(going, left, 0), pieces

    _, pieces = tf.while_loop(
        lambda places, pieces: tf.reduce_any(places > 0) | (pieces.size() < 1),
        step,
        (lengths, pieces),
    )
    return tf.transpose(pieces.stack()[::-1])
