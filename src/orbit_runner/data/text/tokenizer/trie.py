"""The pieces of a vocabulary as a tree of characters in flat arrays; numpy only."""

from __future__ import annotations

import dataclasses

import numpy as np

from orbit_runner.data.text.source import UNKNOWN
from orbit_runner.data.text.tokenizer.vocabulary import Vocabulary

# More than the largest code point, 0x10FFFF.
NODE_STRIDE = 2**21
# A node without edges, where text goes that no piece starts with.
DEAD = 1
_UNKNOWN_PENALTY = np.float32(10.0)


@dataclasses.dataclass(frozen=True, eq=False)
class Trie:
    """Which pieces start with which characters.

    Attributes:
        edges: `NODE_STRIDE` times a node plus a code point, sorted, int64 [m].
        children: The node that each edge leads to, int64 [m].
        piece_of_node: The piece that ends at a node, or -1, int32 [nodes]; node 0 is the root.
        scores: Of each piece, float32 [pieces]; the unknown one has that of a character that is
            no piece.
        longest: Characters of the longest piece.
    """

    edges: np.ndarray
    children: np.ndarray
    piece_of_node: np.ndarray
    scores: np.ndarray
    longest: int


def trie_of(vocabulary: Vocabulary) -> Trie:
    """Lays out the pieces that text can be cut into.

    Args:
        vocabulary: The vocabulary.

    Returns:
        Its pieces but padding, the end and the unknown.
    """
    edges: dict[int, int] = {}
    ends: dict[int, int] = {}
    pieces = vocabulary.pieces[UNKNOWN + 1 :]
    for number, piece in enumerate(pieces, UNKNOWN + 1):
        node = 0
        for character in piece:
            node = edges.setdefault(node * NODE_STRIDE + ord(character), len(edges) + 2)
        ends[node] = number
    scores = np.array(vocabulary.scores, np.float32)
    # As SentencePiece has it (src/unigram_model.cc): worse than the worst piece.
    scores[UNKNOWN] = scores[UNKNOWN + 1 :].min() - _UNKNOWN_PENALTY
    keys = np.fromiter(edges, np.int64, len(edges))
    order = np.argsort(keys)
    return Trie(
        edges=keys[order],
        children=np.fromiter(edges.values(), np.int64, len(edges))[order],
        piece_of_node=np.array([ends.get(node, -1) for node in range(len(edges) + 2)], np.int32),
        scores=scores,
        longest=max(map(len, pieces)),
    )
