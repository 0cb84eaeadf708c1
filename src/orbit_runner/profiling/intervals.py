"""Arithmetic with intervals of time, as pairs of start and end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Returns disjoint intervals that cover the same time, in order."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            if end > found[-1][1]:
                found[-1] = (found[-1][0], end)
        elif end > start:
            found.append((start, end))
    return found


def overlap(left: Sequence[Interval], right: Sequence[Interval]) -> int:
    """Returns the length of the time that is in both; each must be the result of `union`."""
    total, a, b = 0, 0, 0
    while a < len(left) and b < len(right):
        start, end = max(left[a][0], right[b][0]), min(left[a][1], right[b][1])
        total += max(0, end - start)
        if left[a][1] < right[b][1]:
            a += 1
        else:
            b += 1
    return total


def length(intervals: Iterable[Interval]) -> int:
    """Returns the length of disjoint intervals."""
    return sum(end - start for start, end in intervals)


def self_times(intervals: Sequence[Interval]) -> list[int]:
    """Returns the length of each interval without those inside it.

    The intervals are calls in one thread, so two of them are disjoint or one is inside the other.
    """
    order = sorted(range(len(intervals)), key=lambda n: (intervals[n][0], -intervals[n][1]))
    times = [end - start for start, end in intervals]
    around: list[int] = []
    for one in order:
        start, end = intervals[one]
        while around and intervals[around[-1]][1] <= start:
            around.pop()
        if around:
            times[around[-1]] -= min(end, intervals[around[-1]][1]) - start
        around.append(one)
    return times
