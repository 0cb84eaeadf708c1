"""Synthetic interactions of users who have preferences that a model can learn."""

from __future__ import annotations

import numpy as np

from orbit_runner.data.ratings.interactions import Interactions

# Interactions of a user: minimum, and 1 + mean number of further ones.
_MIN_INTERACTIONS = 20
_EXTRA = 12
_VECTOR_SIZE = 4
_BLOCK_USERS = 256
_SHARPNESS = 4.0


def load(
    *, num_examples: int = 1024, num_items: int = 500, kind: str = "random", seed: int = 0
) -> Interactions:
    """Returns at least `num_examples` synthetic interactions, user by user, with ids from 1.

    Users and items have random preference vectors. A user chooses items without replacement, each
    with a probability proportional to exp(sharpness · cosine of the vectors) (Plackett–Luce): the
    items with the largest sums of score and Gumbel noise are chosen. They are in random order, so
    that the latest one is like the others.

    Users are added until there are enough interactions. `num_items` must be at least 40. If `kind`
    is `constant` and not `random`, all users choose the same items. With the same seed, a smaller
    dataset is the beginning of a larger one.
    """
    items = []
    counts = []
    total = 0
    block = 0
    while total < num_examples:
        chosen, sizes = _draw_user_block(block, num_items, kind, seed)
        enough = int(np.searchsorted(np.cumsum(sizes), num_examples - total)) + 1
        items.append(chosen[: sizes[:enough].sum()])
        counts.append(sizes[:enough])
        total = total + len(items[-1])
        block = block + 1
    users = np.repeat(np.arange(1, sum(map(len, counts)) + 1), np.concatenate(counts))
    return Interactions(
        "synthetic",
        users,
        np.concatenate(items) + 1,
        np.arange(total),
        known_items=np.arange(1, num_items + 1),
    )


def _draw_user_block(
    block: int, num_items: int, kind: str, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    if kind == "constant":
        return np.tile(np.arange(_MIN_INTERACTIONS), _BLOCK_USERS), np.full(
            _BLOCK_USERS, _MIN_INTERACTIONS
        )
    generator = _generator(seed, 1 + block)
    extra = generator.geometric(1 / _EXTRA, _BLOCK_USERS) - 1
    sizes = np.minimum(_MIN_INTERACTIONS + extra, num_items // 2)
    scores = _SHARPNESS * _preference_vectors(generator, _BLOCK_USERS) @ _preference_vectors(
        _generator(seed, 0), num_items
    ).T + generator.gumbel(size=(_BLOCK_USERS, num_items))
    ranked = np.argsort(-scores, axis=1, kind="stable")
    rows = [generator.permutation(row[:size]) for row, size in zip(ranked, sizes, strict=True)]
    return np.concatenate(rows), sizes


def _preference_vectors(generator: np.random.Generator, count: int) -> np.ndarray:
    vectors = generator.standard_normal((count, _VECTOR_SIZE))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _generator(seed: int, stream: int) -> np.random.Generator:
    entropy = np.random.SeedSequence((seed % 2**64, stream))
    return np.random.Generator(np.random.Philox(entropy))
