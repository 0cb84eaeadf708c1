"""Makes parallel text: seeded sentences of made-up words, and files of them."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from orbit_runner.data.text.source import EOS, PairSource, Ragged

_LETTERS = "abcdefghijklmnopqrstuvwxyzäöüß"


def sentences(count: int, seed: int = 0, letters: str = _LETTERS, words: int = 120) -> list[str]:
    """Returns sentences of 1 to 12 words."""
    generator = np.random.default_rng(seed)
    known = [
        "".join(generator.choice(list(letters), generator.integers(1, 8))) for _ in range(words)
    ]
    return [" ".join(generator.choice(known, generator.integers(1, 13))) for _ in range(count)]


def write_text(path: Path, lines: Sequence[str]) -> Path:
    """Writes a file, gzipped if its name ends in .gz."""
    content = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def token_pairs(size: int, longest: int = 60, seed: int = 0) -> PairSource:
    """Returns pairs whose first token is 3 plus their index."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(2, longest + 1, size)
    others = np.clip(lengths + generator.integers(-3, 4, size), 2, longest)
    sides = [
        Ragged.from_rows(
            [[3 + k, *generator.integers(3, 3 + size, n - 2), EOS] for k, n in enumerate(ns)]
        )
        for ns in (lengths, others)
    ]
    return PairSource("made", *sides, 3 + size)
