"""The click logs of Criteo as they are after preprocessing: tab-separated, a click a line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np


def write_clicks(path: Path, rows: int, dense: int, vocab_sizes: Sequence[int]) -> str:
    """Writes clicks.

    Args:
        path: The file.
        rows: How many.
        dense: Features that are numbers.
        vocab_sizes: How many values each categorical feature has.

    Returns:
        The path, as settings take it.
    """
    draw = np.random.default_rng(0)
    lines = []
    for number in range(rows):
        numbers = [f"{value:.4f}" for value in draw.random(dense)]
        categories = [str(draw.integers(size)) for size in vocab_sizes]
        lines.append("\t".join([str(number % 2), *numbers, *categories]))
    path.write_text("\n".join(lines) + "\n")
    return str(path)
