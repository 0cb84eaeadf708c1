"""Measures the time from the start of a process to the end of its first step, on the digits.

Compares this runner with a Model Garden user's program for the same network. Each start is a new
process.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.official_start import measure_first_step

_LOOPS = (
    "trainer.train_epochs=0,trainer.train_steps=100,trainer.steps_per_loop=1,"
    "trainer.summary_interval=1,trainer.checkpoint_interval=100"
)


def _runner(folder: Path) -> list[str]:
    command = str(Path(sys.executable).with_name("runner"))
    flags = [f"--params_override={_LOOPS}", "--mode=train", f"--model_dir={folder}"]
    return [command, "--experiment=digits", *flags]


def _driver(folder: Path) -> list[str]:
    return [sys.executable, "-u", "-m", "benchmarks.digits_driver", str(folder)]


def report(rounds: int = 7) -> str:
    """Starts each contender `rounds` times, and returns a table."""
    makers: dict[str, Callable[[Path], list[str]]] = {
        "Model Garden's runner": _driver,
        "this runner": _runner,
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in makers}
    for turn in range(rounds + 1):
        for name in list(makers)[:: 1 if turn % 2 else -1]:
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place) / "run"
                took = measure_first_step(makers[name](folder), folder)
            if turn:  # The first round only warms the file cache.
                found[name].append(took)
    theirs = found["Model Garden's runner"]
    lines = [
        "### from the start of a process to its first step, `digits`",
        "",
        "| | seconds (median) | of processor time | ratio (median) | lowest to highest |",
        "|---|---|---|---|---|",
    ]
    for name, own in found.items():
        ratios = [a[0] / b[0] for a, b in zip(own, theirs, strict=True)]
        walls, busy = (statistics.median(column) for column in zip(*own, strict=True))
        lines.append(
            f"| {name} | {walls:.1f} | {busy:.1f} | {statistics.median(ratios):.2f} "
            f"| {min(ratios):.2f} to {max(ratios):.2f} |"
        )
    return "\n".join([*lines, ""])
