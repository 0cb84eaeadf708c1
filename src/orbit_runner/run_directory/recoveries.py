"""How often a run had returned to a checkpoint after divergence, by step; see `metrics.jsonl`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from orbit_runner.utils.files import parse_json, read_file

RECOVERED, RESUMED = "recovered", "resumed"


def read_recoveries(metrics: Path) -> list[tuple[int, int]]:
    """Returns the parts of a run with the same number of recoveries: (first step, recoveries).

    Steps are numbered from 1, and parts are in ascending order; the first begins at step 1. Each
    recovery changes the seed of the data, and so the order of the examples after it.
    """
    parts = [(1, 0)]
    for step, recoveries in _events(metrics):
        parts = [part for part in parts if part[0] <= step]
        if not parts or parts[-1][1] != recoveries:
            parts.append((step + 1, recoveries))
    return parts


def recoveries_of(parts: list[tuple[int, int]], step: int) -> int:
    """Returns the number of recoveries with which a step was trained."""
    return next(count for first, count in reversed(parts) if first <= step)


def _events(path: Path) -> Iterator[tuple[int, int]]:
    """Yields the step and the new number of recoveries of each event, in order."""
    try:
        lines = read_file(path).splitlines()
    except OSError:
        return
    for line in lines:
        if b'"recoveries"' not in line:
            continue
        try:
            event = parse_json(line)
            if event["event"] in (RECOVERED, RESUMED):
                yield int(event["step"]), int(event["recoveries"])
        except (ValueError, KeyError, TypeError, OverflowError):
            continue  # A process was killed while it wrote the line.
