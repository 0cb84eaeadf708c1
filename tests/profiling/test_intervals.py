"""Arithmetic with intervals of time."""

from __future__ import annotations

import pytest

from orbit_runner.profiling.calls import Interval, length, overlap, self_times, union


@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        ([], []),
        ([(3, 3)], []),
        ([(5, 7), (1, 2)], [(1, 2), (5, 7)]),
        ([(1, 4), (2, 3), (4, 6)], [(1, 6)]),
        ([(1, 9), (2, 3), (5, 12)], [(1, 12)]),
    ],
)
def test_union_is_disjoint_and_in_order(
    intervals: list[Interval], expected: list[Interval]
) -> None:
    assert union(intervals) == expected


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ([(0, 10)], [(2, 3), (5, 7)], 3),
        ([(0, 4), (6, 9)], [(3, 7)], 2),
        ([(0, 4)], [(4, 5)], 0),
        ([], [(0, 1)], 0),
    ],
)
def test_overlap_is_symmetric(left: list[Interval], right: list[Interval], expected: int) -> None:
    assert overlap(left, right) == overlap(right, left) == expected


def test_self_times_leave_out_the_calls_inside() -> None:
    outer, inner, innermost, second, after = (0, 10), (1, 6), (2, 3), (6, 8), (10, 12)

    times = self_times([after, inner, outer, innermost, second])

    assert times == [2, 4, 3, 1, 2]
    assert sum(times) == length(union([outer, after]))


def test_calls_that_start_together_are_inside_the_longer_one() -> None:
    assert self_times([(0, 2), (0, 5)]) == [2, 3]
