"""Measures contenders in turn.

On a shared machine, only the ratios of neighboring measurements are meaningful.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("RESULTS.md")
# One short round of one case, as CI runs it: it shows that a benchmark runs, not how fast it is.
SHORT = os.environ.get("BENCHMARKS") == "short"


def chosen(names: Iterable[str], short: str) -> list[str]:
    """Returns the cases to measure: all, or those in the environment variable `CASES` (`a,b`).

    A short round has only the case `short`.
    """
    wanted = short if SHORT else os.environ.get("CASES", "")
    return [name for name in names if not wanted or name in wanted.split(",")]


def turns(rounds: int) -> range:
    """Returns the numbers of the turns: number 0, which only warms up, and `rounds` that count.

    A short round has no warm-up.
    """
    return range(1, 2) if SHORT else range(rounds + 1)


def amount(count: int) -> int:
    """Returns an amount of work: `count`, or a fraction of it in a short round."""
    return max(2, count // 50) if SHORT else count


@dataclasses.dataclass(frozen=True)
class Figure:
    """The speed of a contender relative to the baseline.

    Attributes:
        name: The name of the contender.
        per_second: The median of its speeds, in units of work per second.
        ratio: The median of its ratios: its speed divided by the baseline's in the same round.
        low: The smallest ratio.
        high: The largest ratio.
    """

    name: str
    per_second: float
    ratio: float
    low: float
    high: float


def alternate(
    contenders: Mapping[str, Callable[[], int]], *, baseline: str, rounds: int
) -> list[Figure]:
    """Runs the contenders in turn. The first round does not count.

    Args:
        contenders: Functions by name. Each does some work and returns the amount.
        baseline: The name of the contender that all are compared with.
        rounds: The number of rounds that count.

    Returns:
        A figure for each contender.
    """
    names = list(contenders)
    speeds: dict[str, list[float]] = {name: [] for name in names}
    for turn in turns(rounds):
        # The order rotates, so that a drift in the machine's speed favors no contender.
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


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(title: str, unit: str, figures: list[Figure]) -> str:
    """Returns the figures as a Markdown table below a heading."""
    lines = [
        f"### {title}",
        "",
        f"| | {unit} (median) | ratio (median) | lowest to highest |",
        "|---|---|---|---|",
    ]
    for figure in figures:
        lines.append(
            f"| {figure.name} | {_format_number(figure.per_second)} | {figure.ratio:.2f} "
            f"| {figure.low:.2f} to {figure.high:.2f} |"
        )
    return "\n".join([*lines, ""])


def report(module: Any) -> str:
    """Runs a benchmark and returns its results as Markdown.

    The module defines either `report`, or `TITLE`, `UNIT` and `measure`.
    """
    if hasattr(module, "report"):
        return module.report()
    return table(module.TITLE, module.UNIT, module.measure())


def machine() -> str:
    """Returns one line that describes the machine and the versions of the packages."""
    versions = ", ".join(
        f"{name} {metadata.version(name)}" for name in ("tensorflow", "tf_keras", "numpy")
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} cores, {platform.machine()}, Python {platform.python_version()}, {versions}"
