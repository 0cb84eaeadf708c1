from __future__ import annotations

import numpy as np
import pytest

from orbit_runner.data.arrays import leaves
from orbit_runner.data.source import ArraySource
from tests.support.problems import raises


def test_array_source_size_covers_nested_arrays():
    arrays = {"words": {"ids": np.zeros((3, 7)), "mask": np.zeros((3, 7))}, "label": np.zeros(3)}
    assert ArraySource("s", arrays).size == 3
    assert [path for path, _ in leaves(arrays)] == ["words.ids", "words.mask", "label"]


@pytest.mark.parametrize(
    "arrays", [{}, {"a": np.zeros(0)}, {"a": np.zeros(2), "b": {"c": np.zeros(3)}}]
)
def test_empty_or_differently_sized_arrays_are_rejected(arrays):
    with raises("bad-data"):
        ArraySource("s", arrays)
