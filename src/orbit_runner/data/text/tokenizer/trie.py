"""The pieces of a vocabulary as a trie of characters in flat arrays; NumPy only."""

from __future__ import annotations

import dataclasses

import numpy as np

from orbit_runner.data.text.source import UNKNOWN
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary

# More than the largest code point, 0x10FFFF.
NODE_STRIDE = 2**21
# A node without edges, for text that no piece starts with.
DEAD = 1
_UNKNOWN_PENALTY = np.float32(10.0)


@dataclasses.dataclass(frozen=True, eq=False)
class Trie:
    """The trie of all pieces; node 0 is the root."""

    edges: np.ndarray  # `NODE_STRIDE` times a node plus a code point, sorted: int64 [m].
    children: np.ndarray  # The node that each edge leads to: int64 [m].
    piece_of_node: np.ndarray  # The piece that ends at each node, or -1: int32 [nodes].
    # The score of each piece: float32 [pieces]. The score of the unknown piece is that of any
    # character that is not a piece.
    scores: np.ndarray
    longest: int  # Number of characters of the longest piece.


def trie_of(vocabulary: Vocabulary) -> Trie:
    """Returns the trie of all pieces except padding, `EOS` and the unknown piece."""
    edges: dict[int, int] = {}
    ends: dict[int, int] = {}
    pieces = vocabulary.pieces[UNKNOWN + 1 :]
    for number, piece in enumerate(pieces, UNKNOWN + 1):
        node = 0
        for character in piece:
            node = edges.setdefault(node * NODE_STRIDE + ord(character), len(edges) + 2)
        ends[node] = number
    scores = np.array(vocabulary.scores, np.float32)
    # As in SentencePiece (src/unigram_model.cc): lower than the lowest score of a piece.
    scores[UNKNOWN] = scores[UNKNOWN + 1 :].min() - _UNKNOWN_PENALTY
    keys = np.fromiter(edges, np.int64, len(edges))
    order = np.argsort(keys, kind="stable")
    return Trie(
        edges=keys[order],
        children=np.fromiter(edges.values(), np.int64, len(edges))[order],
        piece_of_node=np.array([ends.get(node, -1) for node in range(len(edges) + 2)], np.int32),
        scores=scores,
        longest=max(map(len, pieces)),
    )
