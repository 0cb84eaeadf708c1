"""A vocabulary in plain TensorFlow ops, for models that are served without other libraries."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from orbit_runner.data.text.source import EOS, PAD, UNKNOWN
from orbit_runner.data.text.tokenizer.vocabulary import SPACES, Vocabulary

_SPACE = "▁"
_NONE = -1
# More than the largest code point, 0x10FFFF.
_NODE_STRIDE = 2**21
# A node without edges, for text that no piece starts with.
_DEAD = 1
_UNKNOWN_PENALTY = np.float32(10.0)


class GraphTokenizer(tf.Module):
    """Encodes and decodes text in TensorFlow ops, with the same results as the vocabulary.

    Raises DataError with the field `vocabulary` if plain ops cannot reproduce the vocabulary.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(name="tokenizer")
        vocabulary.check_reproducible()
        self._trie = _trie_of(vocabulary)
        texts = [piece.replace(_SPACE, " ") for piece in vocabulary.pieces]
        texts[PAD], texts[EOS], texts[UNKNOWN] = "", "", " ⁇ "
        self._texts = np.array([text.encode() for text in texts], object)

    def encode(self, sentences: tf.Tensor, max_length: int | None = None) -> tf.Tensor:
        """Returns the subword ids of sentences: int32 [b, n], ended with `EOS`, padded with 0.

        `sentences` are UTF-8, string [b]; invalid bytes become U+FFFD. Sentences of more than
        `max_length` tokens, including `EOS`, are truncated.
        """
        valid = tf.strings.unicode_transcode(sentences, "UTF-8", "UTF-8")
        cleaned = _clean(valid)
        marked = tf.strings.regex_replace(tf.strings.join([" ", cleaned]), " ", _SPACE)
        marked = tf.where(tf.equal(cleaned, ""), "", marked)
        characters = tf.strings.unicode_decode(marked, "UTF-8")
        rows = _best_pieces(self._trie, characters.to_tensor(), characters.row_lengths())
        if max_length is not None:
            rows = rows[:, : max_length - 1]
        ends = tf.fill([rows.nrows(), 1], np.int32(EOS))
        return tf.concat([rows, ends], axis=1).to_tensor(PAD)

    def decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the sentences, string [b], of subword ids, int32 or int64 [b, n].

        Padding, and all ids from the first `EOS`, are ignored.
        """
        known = tf.where((ids >= 0) & (ids < len(self._texts)), ids, UNKNOWN)
        ended = tf.cumsum(tf.cast(tf.equal(known, EOS), tf.int32), axis=1) > 0
        texts = tf.gather(tf.constant(self._texts, tf.string), known)
        return _clean(tf.strings.reduce_join(tf.where(ended, "", texts), axis=1))


def _clean(sentences: tf.Tensor) -> tf.Tensor:
    """Returns the same as `vocabulary.clean`, string [b]."""
    return tf.strings.strip(tf.strings.regex_replace(sentences, SPACES, " "))


@dataclasses.dataclass(frozen=True, eq=False)
class _Trie:
    """The trie of all pieces; node 0 is the root."""

    edges: np.ndarray  # `_NODE_STRIDE` times a node plus a code point, sorted: int64 [m].
    children: np.ndarray  # The node that each edge leads to: int64 [m].
    piece_of_node: np.ndarray  # The piece that ends at each node, or -1: int32 [nodes].
    # The score of each piece: float32 [pieces]. The score of the unknown piece is that of any
    # character that is not a piece.
    scores: np.ndarray
    longest: int  # Number of characters of the longest piece.


def _trie_of(vocabulary: Vocabulary) -> _Trie:
    """Returns the trie of all pieces except padding, `EOS` and the unknown piece."""
    edges: dict[int, int] = {}
    ends: dict[int, int] = {}
    pieces = vocabulary.pieces[UNKNOWN + 1 :]
    for number, piece in enumerate(pieces, UNKNOWN + 1):
        node = 0
        for character in piece:
            node = edges.setdefault(node * _NODE_STRIDE + ord(character), len(edges) + 2)
        ends[node] = number
    scores = np.array(vocabulary.scores, np.float32)
    # As in SentencePiece (src/unigram_model.cc): lower than the lowest score of a piece.
    scores[UNKNOWN] = scores[UNKNOWN + 1 :].min() - _UNKNOWN_PENALTY
    keys = np.fromiter(edges, np.int64, len(edges))
    order = np.argsort(keys, kind="stable")
    return _Trie(
        edges=keys[order],
        children=np.fromiter(edges.values(), np.int64, len(edges))[order],
        piece_of_node=np.array([ends.get(node, -1) for node in range(len(edges) + 2)], np.int32),
        scores=scores,
        longest=max(map(len, pieces)),
    )


def _best_pieces(trie: _Trie, characters: tf.Tensor, lengths: tf.Tensor) -> tf.RaggedTensor:
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


def _starting_pieces(trie: _Trie, characters: tf.Tensor) -> tf.Tensor:
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
        keys = nodes * _NODE_STRIDE + padded[offset : offset + count]
        index = tf.searchsorted(edges, tf.reshape(keys, [-1]))
        index = tf.reshape(tf.minimum(index, len(trie.edges) - 1), tf.shape(keys))
        exists = tf.equal(tf.gather(edges, index), keys)
        nodes = tf.where(exists, tf.gather(children, index), np.int64(_DEAD))
        pieces.append(tf.gather(tf.constant(trie.piece_of_node), nodes))
    pieces[0] = tf.where(tf.equal(pieces[0], _NONE), UNKNOWN, pieces[0])
    return tf.stack(pieces, axis=-1)


class _Frontier(NamedTuple):
    """The best segmentations up to the next places: sums, last pieces and the pieces' sizes."""

    sums: tf.Tensor
    ids: tf.Tensor
    sizes: tf.Tensor


_UNREACHED = _Frontier(np.float32(-np.inf), np.int32(_NONE), np.int32(0))


def _best_endings(trie: _Trie, starting: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
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
