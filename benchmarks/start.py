"""Measures the time from the start of a process to the end of its first step, on the digits.

Compares this runner with a Model Garden user's program for the same network. Each start is a new
process. The first step is complete when it is reported: by a line of Orbit in the program, by a
record in `metrics.jsonl` in this runner.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import turns

_MOST_SECONDS = 300.0
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


def measure_first_step(command: list[str], folder: Path) -> tuple[float, float]:
    """Starts a process and waits for its first step.

    Args:
        command: The command line.
        folder: Its run directory.

    Returns:
        The wall time and the processor time, in seconds.

    Raises:
        RuntimeError: The process ended or timed out before its first step.
    """
    log, errors = folder.parent / "stdout", folder.parent / "stderr"
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    with log.open("w") as out, errors.open("w") as error:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=error, env=environment)
        try:
            while not (_has_logged_step(log) or _has_record(folder / "metrics.jsonl")):
                if process.poll() is not None or time.perf_counter() - start > _MOST_SECONDS:
                    raise RuntimeError(
                        f"{command} did not complete a step:\n{errors.read_text()[-2000:]}"
                    )
                time.sleep(0.005)
            return time.perf_counter() - start, _cpu_seconds(process.pid)
        finally:
            process.kill()
            process.wait()


def _has_logged_step(log: Path) -> bool:
    return "train | step:      1 |" in log.read_text()


def _has_record(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:13]) / os.sysconf("SC_CLK_TCK")


def report(rounds: int = 7) -> str:
    """Starts each contender `rounds` times, and returns a table."""
    makers: dict[str, Callable[[Path], list[str]]] = {
        "Model Garden's runner": _driver,
        "this runner": _runner,
    }
    timings: dict[str, list[tuple[float, float]]] = {name: [] for name in makers}
    for turn in turns(rounds):
        for name in list(makers)[:: 1 if turn % 2 else -1]:
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place) / "run"
                took = measure_first_step(makers[name](folder), folder)
            if turn:  # The first round only warms the file cache.
                timings[name].append(took)
    theirs = timings["Model Garden's runner"]
    lines = [
        "### from the start of a process to its first step, `digits`",
        "",
        "| | seconds (median) | of processor time | ratio (median) | lowest to highest |",
        "|---|---|---|---|---|",
    ]
    for name, own in timings.items():
        ratios = [a[0] / b[0] for a, b in zip(own, theirs, strict=True)]
        walls, busy = (statistics.median(column) for column in zip(*own, strict=True))
        lines.append(
            f"| {name} | {walls:.1f} | {busy:.1f} | {statistics.median(ratios):.2f} "
            f"| {min(ratios):.2f} to {max(ratios):.2f} |"
        )
    return "\n".join([*lines, ""])
