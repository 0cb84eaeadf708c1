"""A run that is stopped prints its directory and the command that continues it."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.cli.continuation import change_flags
from orbit_runner.cli.main import main
from orbit_runner.run_directory.metric_records import MetricLog
from orbit_runner.run_directory.run_reader import RunReader
from orbit_runner.train.callbacks.base import Callback
from orbit_runner.utils.signals import exit_signals
from tests.support.run_directories import last_attempt

_FLAGS = [
    "--experiment=digits_mlp",
    "--train_steps=40",
    "--trainer.validation_interval=0",
    "--trainer.summary_interval=10",
    "--trainer.steps_per_loop=5",
    "--runtime.distribution_strategy=one_device",
]


class SendSignal(Callback):
    """Sends a signal to the process, as a user or a scheduler does."""

    def __init__(self, number: int, at: int = 10) -> None:
        self._number, self._at = number, at

    def on_loop_end(self, run: Any, logs: Any) -> None:
        if run.step == self._at:
            os.kill(os.getpid(), self._number)


@pytest.fixture
def start(here, monkeypatch, capsys):
    """Runs a command; returns its exit code, standard output and standard error."""
    # `nohup`, under which the tests may run, ignores it, and so would the runner.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["runner", *arguments])
        code = main()
        return (code, *capsys.readouterr())

    yield run
    signal.signal(signal.SIGHUP, before)


def _continuation(text: str) -> tuple[str, list[str]]:
    """Returns the directory and the arguments that the last two lines name."""
    place, command = text.splitlines()[-2:]
    assert place.startswith("  run       ")
    assert command.startswith("  continue  runner ")
    return place.split(maxsplit=1)[1], shlex.split(command.split(maxsplit=2)[2])


def _signal_flag(number: int) -> str:
    name = f"{__name__}.SendSignal"
    callback = f"{{class_name: {name}, arguments: {{number: {number}}}}}"
    return f"--params_override={{callbacks: [{callback}]}}"


@pytest.mark.slow
@pytest.mark.parametrize(("number", "named"), [(signal.SIGINT, True), (signal.SIGHUP, False)])
def test_command_after_a_signal_continues_in_the_same_directory(start, number, named):
    flags = [*_FLAGS, _signal_flag(number), *(["--model_dir=a b"] if named else [])]
    code, stdout, stderr = start(*flags)
    place, arguments = _continuation(stderr)

    assert (code, stdout) == (128 + number, "")
    assert (place == "a b") == named
    run = Path(place)
    # The last loop is recorded, although the signal arrived during it.
    assert [*MetricLog(run / "metrics.jsonl").records()][-1]["step"] == 10
    assert last_attempt(run)["outcome"].startswith("Interrupted: ")
    assert start(*arguments)[0] == 0
    summary = RunReader(run)
    assert (summary.status, summary.step) == ("finished", 40)
    assert sum(1 for _ in Path.cwd().rglob("run.json")) == 1


@pytest.mark.usefixtures("start")
def test_hangup_that_is_ignored_as_under_nohup_stays_ignored():
    assert signal.SIGHUP in exit_signals()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert signal.SIGHUP not in exit_signals()


@pytest.mark.slow
def test_command_after_a_stop_at_a_step_lacks_that_flag(start):
    code, _, stderr = start(*_FLAGS, "--stop_at_step", "10")
    place, arguments = _continuation(stderr)

    assert code == 0
    assert arguments == [*_FLAGS, f"--model_dir={place}"]


@pytest.mark.slow
def test_command_after_divergence_asks_for_a_change(start):
    bound = ["--trainer.loss_upper_bound=1e-9", "--trainer.recovery_begin_steps=10"]
    code, stdout, stderr = start(*_FLAGS, *bound, "--trainer.checkpoint_interval=5")
    command, _, comment = stderr.splitlines()[-1].partition("  # ")

    assert (code, stdout) == (3, "")
    (record,) = Path.cwd().rglob("run.json")
    assert last_attempt(record.parent)["outcome"].startswith("Diverged: ")
    assert command.endswith(" --resume=override")
    assert comment == "add what you change, such as the learning rate"


def test_mistake_before_training_prints_no_command(start):
    assert "continue" not in start(*_FLAGS, "--batch_size=0")[2]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["runner", "--a=1"], ["runner", "--a=1", "--b=2"]),
        (["runner", "--b=1", "--a=1"], ["runner", "--a=1", "--b=2"]),
        (["runner", "--b", "1", "--a", "1"], ["runner", "--a", "1", "--b=2"]),
    ],
)
def test_flags_of_a_command_are_replaced(command, expected):
    assert change_flags(command, {"b": "2", "c_d": None}) == expected
    assert change_flags([*command, "--c_d=3", "--c_d", "4"], {"b": "2", "c_d": None}) == expected
