"""Sweeps whose processes are killed at random have the results of an undisturbed one.

`make soak SUITE=sweeps` runs 32 trials with one, two and three processes, ten times; the tests are
a sample. A process trains several trials.
"""

from __future__ import annotations

import contextlib
import functools
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.sweep.sweep_files import RATE

_TEXT = f"""\
experiment: digits_mlp
overrides:
  trainer: {{train_steps: STEPS, validation_interval: RUNG, checkpoint_interval: RUNG}}
space:
  {RATE}: {{log_uniform: [1.0e-4, 1.0e-2]}}
  task.model.hidden_units: [[64], [128, 64]]
objective: {{metric: accuracy, mode: max}}
search: {{type: TYPE, trials: TRIALS, seed: 1, halving: {{rungs: [RUNGS], keep: 0.5}}}}
"""
_LIMIT_SECONDS = 3600.0


def _text(kind: str, *, whole: bool) -> str:
    values = {"TYPE": kind, "TRIALS": "32" if whole else "4", "STEPS": "300" if whole else "40"}
    values |= {"RUNGS": "100, 200" if whole else "20", "RUNG": "100" if whole else "20"}
    text = _TEXT
    for name in ("TYPE", "TRIALS", "STEPS", "RUNGS", "RUNG"):
        text = text.replace(name, values[name])
    return text


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    rounds = metafunc.config.getoption("--sweep-kills", default=0)
    cases = [
        (kind, count, n) for kind in ("random", "tpe") for n in range(rounds) for count in (1, 2, 3)
    ]
    metafunc.parametrize(("kind", "count", "number"), cases or [("tpe", 2, 0)])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, request):
    """The results of sweeps that nothing disturbs, by the kind of search; filled by the test."""
    return {}


@pytest.mark.promise(
    "faults",
    "a sweep whose processes are killed at random ends with the same results, byte for byte",
)
@pytest.mark.slow
def test_killed_sweep_has_the_results_of_an_undisturbed_one(
    kind, count, number, undisturbed, tmp_path, request
):
    is_whole = bool(request.config.getoption("--sweep-kills", default=0))
    file = tmp_path / "s.yaml"
    file.write_text(_text(kind, whole=is_whole))
    if kind not in undisturbed:
        process = _start(file, tmp_path / "undisturbed", jobs=2)
        assert process.wait() == 0, (tmp_path / "undisturbed.log").read_text()
        undisturbed[kind] = (tmp_path / "undisturbed" / "sweep.json").read_bytes()
    start = functools.partial(_start, file, tmp_path / "killed")
    log = tmp_path / "killed.log"
    kills = _disturb(start, log, count, random.Random(number), 40 if is_whole else 4)
    print(f"  {kind}, {count} processes: {kills} kills", file=sys.stderr, flush=True)

    assert (tmp_path / "killed" / "sweep.json").read_bytes() == undisturbed[kind]
    assert not (tmp_path / "killed" / "failures").exists()
    for record in (tmp_path / "killed" / "trials").glob("*/run.json"):
        attempts = json.loads(record.read_text())["attempts"]
        assert [attempt.get("outcome") for attempt in attempts].count("done") <= 1


def _start(file: Path, folder: Path, *, jobs: int = 1) -> psutil.Popen:
    command = [sys.executable, "-m", "orbit_runner", "sweep", str(file), f"--model_dir={folder}"]
    command += [f"--jobs={jobs}", "--quiet"]
    with folder.with_name(f"{folder.name}.log").open("ab") as log:
        return psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=log)


def _disturb(
    start: Callable[[], psutil.Popen], log: Path, count: int, rng: random.Random, kills: int
) -> int:
    """Runs a sweep with several processes, and kills any of them or of their children."""
    processes, done, since = [start() for _ in range(count)], 0, time.monotonic()
    while True:
        assert time.monotonic() - since < _LIMIT_SECONDS, log.read_text()
        for index, process in enumerate(processes):
            if process.poll() not in (None, 0):
                assert process.poll() == -9, log.read_text()
                processes[index] = start()
        if all(process.poll() == 0 for process in processes):
            return done
        time.sleep(rng.uniform(0.5, 8.0))
        if done < kills:
            done += _kill_one(processes, rng)


def _kill_one(processes: list[psutil.Popen], rng: random.Random) -> bool:
    running = [process for process in processes if process.poll() is None]
    for process in [*running]:
        with contextlib.suppress(psutil.NoSuchProcess):
            running += process.children(recursive=True)
    if not running:
        return False
    with contextlib.suppress(psutil.NoSuchProcess):
        rng.choice(running).kill()
    return True
