"""Preprocessed click logs in the format of Criteo: tab-separated, one click per line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np


def write_clicks(path: Path, rows: int, dense: int, vocab_sizes: Sequence[int]) -> str:
    """Writes clicks.

    Args:
        path: The file.
        rows: The number of clicks.
        dense: The number of numeric features.
        vocab_sizes: The number of values of each categorical feature.

    Returns:
        The path as a string.
    """
    draw = np.random.default_rng(0)
    lines = []
    for number in range(rows):
        numbers = [f"{value:.4f}" for value in draw.random(dense)]
        categories = [str(draw.integers(size)) for size in vocab_sizes]
        lines.append("\t".join([str(number % 2), *numbers, *categories]))
    path.write_text("\n".join(lines) + "\n")
    return str(path)
