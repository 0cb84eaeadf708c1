"""Measures the time from the start of a process to the end of its first step.

Compares this runner with Model Garden's drivers. Each start is a new process with the same
experiment, settings and data. The first step is complete when it is reported: by a line of Orbit in
the driver, by a record in `metrics.jsonl` in this runner.
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

import yaml

from benchmarks.official_cases import Case, Tree, cases

_MOST_SECONDS = 300.0


def settings(case: Case) -> Tree:
    """Returns the overrides for both runners; a loop has one step."""
    loops = {
        "train_steps": 100,
        "steps_per_loop": 1,
        "summary_interval": 1,
        "checkpoint_interval": 100,
        "validation_steps": 2,
        "validation_interval": 100,
    }
    return {**case.changes, "trainer": {**case.changes.get("trainer", {}), **loops}}


def driver(case: Case, folder: Path) -> list[str]:
    """Returns the command line of Model Garden's driver."""
    name = f"--experiment={case.experiment}"
    return [sys.executable, "-u", "-m", case.driver, name, *_flags(folder)]


def runner(case: Case, folder: Path) -> list[str]:
    """Returns the command line of this runner."""
    command = str(Path(sys.executable).with_name("runner"))
    return [command, f"--experiment=official/{case.experiment}", *_flags(folder)]


def _flags(folder: Path) -> list[str]:
    config, run = folder.parent / "case.yaml", folder
    return ["--mode=train_and_eval", f"--config_file={config}", f"--model_dir={run}"]


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


def report(rounds: int = 5) -> str:
    """Measures each case, or those in the environment variable `CASES` (`name,name`)."""
    wanted = os.environ.get("CASES", "").split(",")
    lines = [
        "### from the start of a process to its first step: this runner / Model Garden's driver",
        "",
        "| | driver, s (median) | this runner, s | ratio of medians | lowest to highest of a round "
        "| of processor time |",
        "|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        # In a separate process, so that this one does not load TensorFlow.
        code = "import benchmarks.official_data as d, pathlib, sys; "
        code += "d.write_all(pathlib.Path(sys.argv[1]))"
        subprocess.run([sys.executable, "-c", code, str(data)], check=True)
        for case in cases(data).values():
            if wanted == [""] or case.name in wanted:
                lines.append(_row(case, Path(folder) / "runs", rounds))
                print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join([*lines, ""])


def _row(case: Case, place: Path, rounds: int) -> str:
    place.mkdir(exist_ok=True)
    (place / "case.yaml").write_text(yaml.safe_dump(settings(case)), encoding="utf-8")
    makers: list[Callable[[Case, Path], list[str]]] = [driver, runner]
    found: list[list[tuple[float, float]]] = [[], []]
    for turn in range(rounds + 1):
        for which in (0, 1) if turn % 2 else (1, 0):
            with tempfile.TemporaryDirectory(dir=place) as folder:
                run = Path(folder) / "run"
                (Path(folder) / "case.yaml").write_text((place / "case.yaml").read_text())
                took = measure_first_step(makers[which](case, run), run)
            if turn:  # The first round only warms the file cache.
                found[which].append(took)
    theirs, ours = ([wall for wall, _ in side] for side in found)
    cpu = [statistics.median(busy for _, busy in side) for side in found]
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    middle = statistics.median(ours), statistics.median(theirs)
    return (
        f"| {case.name} | {middle[1]:.1f} | {middle[0]:.1f} | {middle[0] / middle[1]:.2f} "
        f"| {min(ratios):.2f} to {max(ratios):.2f} | {cpu[1] / cpu[0]:.2f} "
        f"({cpu[0]:.1f} s to {cpu[1]:.1f} s) |"
    )
