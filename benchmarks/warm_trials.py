"""Measures small trials of a sweep, forked from a forkserver, against one cold process per trial.

A batch is 24 trials of 100 steps, with other seeds, two at a time, each with half of the cores.
Batches of both kinds take turns; the ratio is that of neighbors. The start of the server
counts. The processor time includes that of all processes.
"""

from __future__ import annotations

import os
import resource
import statistics
import tempfile
import time
from multiprocessing import forkserver
from pathlib import Path

from orbit_runner.sweep.trial_process import (
    ColdLauncher,
    TrialCommand,
    TrialLauncher,
    TrialProcess,
    WarmLauncher,
)

TRIALS = int(os.environ.get("TRIALS", "24"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
_JOBS, _PAUSE_SECONDS = 2, 0.01
_FLAGS = ("run", "--experiment=digits_mlp", "--trainer.train_steps=100", "--progress=none")


def _cores() -> list[tuple[int, ...]]:
    found = sorted(os.sched_getaffinity(0))
    size = max(1, len(found) // _JOBS)
    return [tuple(found[size * job : size * (job + 1)] or found) for job in range(_JOBS)]


def _command(folder: Path, number: int, cores: tuple[int, ...]) -> TrialCommand:
    return TrialCommand(
        arguments=(*_FLAGS, f"--runtime.seed={number}", f"--model_dir={folder / str(number)}"),
        environ=os.environ,
        cores=cores,
        log=folder / f"{number}.log",
    )


def _train_all(launcher: TrialLauncher, folder: Path) -> None:
    """Runs the trials, and raises `RuntimeError` if one fails."""
    free, running = _cores(), dict[int, tuple[TrialProcess, tuple[int, ...]]]()
    waiting = [*range(TRIALS)]
    while waiting or running:
        while waiting and free:
            number, cores = waiting.pop(0), free.pop()
            running[number] = launcher.start(_command(folder, number, cores)), cores
        for number, (process, cores) in [*running.items()]:
            code = process.poll()
            if code is None:
                continue
            if code:
                raise RuntimeError((folder / f"{number}.log").read_text())
            free.append(cores)
            del running[number]
        time.sleep(_PAUSE_SECONDS)


def _processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _measure_batch(warm: bool) -> tuple[float, float]:
    """Returns the wall time and the processor time of a batch, in seconds."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        launcher: TrialLauncher = WarmLauncher(folder) if warm else ColdLauncher()
        busy, start = _processor_seconds(), time.perf_counter()
        _train_all(launcher, folder)
        launcher.close()
        if warm:
            # Its processor time counts only after this.
            forkserver._forkserver._stop()  # type: ignore[attr-defined]
        return time.perf_counter() - start, _processor_seconds() - busy


def report() -> str:
    """Measures batches of both kinds in turn, and returns a table."""
    found: dict[str, list[tuple[float, float]]] = {"cold": [], "warm": []}
    for turn in range(ROUNDS):
        for name in [*found][:: 1 if turn % 2 else -1]:
            found[name].append(_measure_batch(name == "warm"))
    names = {"cold": "a new process a trial", "warm": "forked from a forkserver"}
    lines = [
        f"### {TRIALS} trials of `digits_mlp`, 100 steps each, two at a time",
        "",
        "| | trials/hour (median) | processor seconds a trial | ratio (median) | lowest to highest "
        "| ratio of processor time |",
        "|---|---|---|---|---|---|",
    ]
    for name, own in found.items():
        walls, busy = (statistics.median(column) for column in zip(*own, strict=True))
        pairs = [*zip(own, found["cold"], strict=True)]
        ratios = [cold[0] / mine[0] for mine, cold in pairs]
        saved = statistics.median(cold[1] / mine[1] for mine, cold in pairs)
        lines.append(
            f"| {names[name]} | {3600 * TRIALS / walls:.0f} | {busy / TRIALS:.2f} "
            f"| {statistics.median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f} "
            f"| {saved:.2f} |"
        )
    return "\n".join([*lines, ""])
