"""Runs the stages of experiments, each in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools.model_garden_matrix import results
from tools.model_garden_matrix.stages import OK, STAGES, first_reason, outcomes, strip_paths
from tools.model_garden_matrix.worker import NOTES

ROOT = Path(__file__).resolve().parents[2]


def run_all(names: list[str], path: Path, seconds: float) -> bool:
    """Runs experiments one after another, and writes each result at once.

    Args:
        names: The registered names.
        path: The file of results. Logs are written to `logs` in its directory.
        seconds: The time limit of a process.

    Returns:
        Whether all experiments completed all stages.
    """
    whole = True
    for number, name in enumerate(names, 1):
        print(f"[{number}/{len(names)}] {name} …", end=" ", file=sys.stderr, flush=True)
        result = run_one(name, path.parent / "logs", seconds)
        results.append(path, result)
        whole &= results.is_complete(result)
        print(_format_result(result), file=sys.stderr, flush=True)
    return whole


def run_one(name: str, logs: Path, seconds: float) -> results.Result:
    """Runs an experiment; if it fails, also in Model Garden's own runner."""
    start = time.monotonic()
    made = _run_in_process("orbit_runner", name, logs, seconds)
    taken = round(time.monotonic() - start, 1)
    there = None if first_reason(made) == "" else _run_in_process("reference", name, logs, seconds)
    return {
        "name": name,
        "outcomes": made,
        "model_garden": there,
        "seconds": taken,
        "versions": results.versions(),
    }


def _run_in_process(runner: str, name: str, logs: Path, seconds: float) -> dict[str, str]:
    logs.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tools.model_garden_matrix.worker", runner, name]
    with (
        tempfile.TemporaryDirectory(prefix="model_garden_matrix_") as made,
        (logs / f"{name.replace('/', '_')}.{runner}.log").open("wb") as log,
    ):
        folder = Path(made)
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        try:
            code = subprocess.run(
                [*command, made],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=seconds,
            ).returncode
            ending = (
                f"the process was killed by signal {-code}" if code < 0 else f"exit code {code}"
            )
        except subprocess.TimeoutExpired:
            ending = f"timed out after {seconds:g} s"
        found = outcomes(folder / NOTES, ending)
        return {stage: strip_paths(outcome, folder) for stage, outcome in found.items()}


def _format_result(result: results.Result) -> str:
    done = [stage for stage in STAGES if result["outcomes"][stage] == OK]
    summary = f"{', '.join(done) or 'no stage'} ({result['seconds']:.0f} s)"
    return "; ".join(filter(None, (summary, first_reason(result["outcomes"]))))
