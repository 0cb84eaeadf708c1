"""Alternating runs in one process: on a shared machine only ratios of neighbours mean anything."""

from __future__ import annotations

import dataclasses
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("RESULTS.md")


@dataclasses.dataclass(frozen=True)
class Figure:
    """One contender against the baseline.

    Attributes:
        name: The contender.
        per_second: Median of its speeds, in units of work a second.
        ratio: Median over the rounds of its speed over the baseline's in the same round.
        low: The smallest of these ratios.
        high: The largest.
    """

    name: str
    per_second: float
    ratio: float
    low: float
    high: float


def alternate(
    contenders: Mapping[str, Callable[[], int]], *, baseline: str, rounds: int
) -> list[Figure]:
    """Runs contenders in turn, after one round that does not count.

    Args:
        contenders: Name to a function that does some work and returns how much.
        baseline: The name that the others are compared with.
        rounds: How often each runs.

    Returns:
        A figure for each contender.
    """
    names = list(contenders)
    speeds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds + 1):
        # Everyone is first, in the middle and last equally often: a drift favours nobody.
        start_at = turn % len(contenders)
        for name in [*names[start_at:], *names[:start_at]]:
            start = time.perf_counter()
            done = contenders[name]()
            if turn:
                speeds[name].append(done / (time.perf_counter() - start))
    return [_figure(name, speeds[name], speeds[baseline]) for name in contenders]


def _figure(name: str, own: list[float], base: list[float]) -> Figure:
    ratios = [a / b for a, b in zip(own, base, strict=True)]
    return Figure(name, statistics.median(own), statistics.median(ratios), min(ratios), max(ratios))


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(title: str, unit: str, figures: list[Figure]) -> str:
    """Formats figures as a Markdown table.

    Args:
        title: Its heading.
        unit: Of the speeds.
        figures: The rows.

    Returns:
        The text.
    """
    lines = [
        f"### {title}",
        "",
        f"| | {unit} (median) | ratio (median) | lowest to highest |",
        "|---|---|---|---|",
    ]
    for figure in figures:
        lines.append(
            f"| {figure.name} | {_rounded(figure.per_second)} | {figure.ratio:.2f} "
            f"| {figure.low:.2f} to {figure.high:.2f} |"
        )
    return "\n".join([*lines, ""])


def report(module: Any) -> str:
    """Runs a benchmark and formats what it found.

    Args:
        module: A module of this package, with a `report` of its own or a title, unit and `measure`.

    Returns:
        A Markdown table.
    """
    if hasattr(module, "report"):
        return module.report()
    return table(module.TITLE, module.UNIT, module.measure())


def machine() -> str:
    """Returns machine and versions, in one line."""
    import os

    versions = ", ".join(
        f"{name} {metadata.version(name)}" for name in ("tensorflow", "tf_keras", "numpy")
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} cores, {platform.machine()}, Python {platform.python_version()}, {versions}"
