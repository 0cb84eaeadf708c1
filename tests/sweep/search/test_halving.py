"""Which trials continue after a rung."""

import math

import pytest

from orbit_runner.sweep.search import count_kept, select_best

OBJECTIVES = {0: 0.5, 1: 0.9, 2: 0.7, 3: 0.9}


@pytest.mark.parametrize(
    ("mode", "fraction", "expected"),
    [
        ("max", 0.5, [1, 3]),
        ("min", 0.5, [0, 2]),
        ("max", 0.25, [1]),
        ("max", 0.01, [1]),
        ("max", 0.7, [1, 2, 3]),
    ],
)
def test_best_trials_are_kept(mode: str, fraction: float, expected: list[int]) -> None:
    assert select_best(OBJECTIVES, fraction, mode) == expected
    assert select_best(dict(reversed(OBJECTIVES.items())), fraction, mode) == expected


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_trial_without_an_objective_is_not_kept(value: float | None) -> None:
    assert select_best({0: value, 1: 0.1}, 0.9, "max") == [1]
    assert select_best({0: value, 1: 0.1}, 0.9, "min") == [1]
    assert select_best({0: value}, 0.9, "min") == []


@pytest.mark.parametrize(
    ("count", "fraction", "expected"), [(30, 0.1, 3), (31, 0.1, 4), (1, 0.5, 1), (5, 0.5, 3)]
)
def test_kept_part_is_rounded_up(count: int, fraction: float, expected: int) -> None:
    assert count_kept(count, fraction) == expected
