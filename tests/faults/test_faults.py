"""A run whose writing system calls fail, or that is killed at one, loses nothing.

`make soak SUITE=faults` tries every call with every fault; these tests are a sample.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.faults.harness import FAULTS, KILL, SHORT, Life, final_state, live, problems_of, spread
from tests.faults.system_calls import is_available

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_available(), reason="needs seccomp's user notifications (Linux)"),
]

_STEPS = 20
_RUN = [
    *("--experiment=digits", "--task.model.filters=[8, 16]", "--task.model.dense_units=16"),
    *("--trainer.train_epochs=0", f"--train_steps={_STEPS}", "--trainer.checkpoint_interval=5"),
    *("--trainer.validation_interval=10", "--trainer.summary_interval=5"),
]
_MIRRORED = ["--distribution_strategy=mirrored", "--runtime.num_virtual_devices=2"]
_WORKERS = ["--distribution_strategy=multi_worker_mirrored", "--runtime.heartbeat_timeout=5"]
_COMMANDS = {
    "one device": _RUN,
    "mirrored": [*_RUN, *_MIRRORED],
    "two workers": ["launch", "--workers=2", "--", *_RUN, *_WORKERS],
    "evaluator": [*_RUN, "--mode=continuous_eval"],
}
# Its processes are not forks, so each start takes long.
_MOST_POINTS = {"two workers": 12}
# `tests/checkpoint/test_disk_errors.py` tells errors apart; `tests/kills` kills more kinds of runs.
_SAMPLE = [
    ("one device", KILL),
    ("one device", "ENOSPC"),
    ("one device", SHORT),
    ("evaluator", KILL),
]
_CASES = [
    *(("one device", fault) for fault in FAULTS),
    *((name, KILL) for name in _COMMANDS if name != "one device"),
]


def _live(name: str, directory: Path, fault: str = "", at: int = -1) -> Life:
    arguments = [*_COMMANDS[name], f"--model_dir={directory}"]
    # The launcher itself does not import TensorFlow.
    return live(arguments, directory, fault, at, as_fork=name != "two workers")


def _state(name: str, directory: Path) -> dict[str, Any]:
    state = final_state(directory, _STEPS)
    # An evaluator that is started again evaluates again, and its records have no order.
    return {**state, "records": sorted({*state["records"]})} if name == "evaluator" else state


Whole = Callable[[str], tuple[Life, dict[str, Any]]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Runs a command without a fault, once. Returns its calls and what it ends with."""
    lives: dict[str, tuple[Life, dict[str, Any]]] = {}

    def run(name: str) -> tuple[Life, dict[str, Any]]:
        if name not in lives:
            directory = tmp_path_factory.mktemp("whole") / "run"
            _prepare(name, directory)
            life = _live(name, directory)
            assert life.code == 0, life.output
            lives[name] = life, _state(name, directory)
        return lives[name]

    return run


def _prepare(name: str, directory: Path) -> None:
    """Trains the run that an evaluator reads."""
    if name == "evaluator":
        life = _live("one device", directory)
        assert life.code == 0, life.output


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a sample of the cases, unless faults are asked for."""
    cases = _CASES if metafunc.config.getoption("--points", default="") else _SAMPLE
    metafunc.parametrize(("name", "fault"), cases, ids=[" ".join(case) for case in cases])


@pytest.mark.promise(
    "faults",
    "a run that is killed at any writing call and started again ends with the same weights, "
    "optimizer, best result and records, bit for bit",
)
@pytest.mark.promise(
    "faults",
    "if a writing call fails (`ENOSPC`, `EIO`, `EROFS`, `EDQUOT`) or writes only a part, the run "
    "continues or ends with one message and no traceback; the exit code is 1, or 2 if the "
    "directory cannot be written at the start",
)
@pytest.mark.promise(
    "faults",
    "a checkpoint that was complete before the fault is complete after it, or a newer one is; the "
    "next start resumes from it",
)
def test_fault_at_a_writing_call_loses_nothing(name, fault, whole, points, record, tmp_path):
    undisturbed, expected = whole(name)
    places = [
        index
        for index, call in enumerate(undisturbed.calls)
        if fault != SHORT or call.startswith(("write ", "pwrite64 "))
    ]
    assert places
    most = min(points, _MOST_POINTS.get(name, points))
    chosen = [places[index] for index in spread(len(places), most or 1)]

    def problems(place: int) -> str:
        directory = tmp_path / str(place) / "run"
        directory.parent.mkdir()
        _prepare(name, directory)
        life = _live(name, directory, fault, place)
        problems_of_call = problems_of(
            life,
            directory,
            lambda: _live(name, directory),
            lambda: _state(name, directory),
            expected,
        )
        at = life.calls[place] if place < len(life.calls) else "the end"
        print(
            f"{name}, {fault} at call {place} ({at}): {'; '.join(problems_of_call) or 'ok'}",
            flush=True,
        )
        if problems_of_call:
            return "\n".join([f"{fault} at call {place}, {at}:", *problems_of_call])
        shutil.rmtree(directory.parent)
        return ""

    with ThreadPoolExecutor((os.cpu_count() or 1) if points else 1) as pool:
        failures = list(filter(None, pool.map(problems, chosen)))
    record(f"{name}, {fault}", points=len(chosen), calls=len(places), failed=len(failures))
    assert not failures, "\n\n".join(failures)
