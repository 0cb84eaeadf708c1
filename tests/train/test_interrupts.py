"""Signals and notices of preemption, as the loop sees them."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.config.errors import ConfigError
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.runtime import PreemptionConfig
from orbit_runner.train.callbacks.base import Callback
from orbit_runner.train.callbacks.interrupts import (
    LeftAtOnce,
    PreemptionWatch,
    SignalGuard,
)
from tests.support.problems import raises
from tests.support.toy import run, toy_config

OFTEN = {"runtime__preemption__poll_interval": 0.001}


class Clock:
    """A clock that the test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def _send(guard: SignalGuard, clock: Clock, signals: list[tuple[int, float]]) -> None:
    """Sends signals, each after some seconds."""
    # A signal that is ignored, as under `nohup`, stays ignored.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with guard.installed_scope():
        for number, seconds in signals:
            clock.now += seconds
            signal.raise_signal(number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_second_signal_leaves_at_once(number: int) -> None:
    clock = Clock()
    guard = SignalGuard(on_terminate=True, clock=clock)
    _send(guard, clock, [(number, 0.0), (number, 4.5)])  # To the process and to its group.
    assert guard.received == number
    with pytest.raises(LeftAtOnce, match="nothing has been saved") as caught:
        _send(guard, clock, [(number, 0.5)])
    assert caught.value.exit_code == 128 + number


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_second_signal_of_a_request_does_not_kill_a_run_that_has_saved(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills: list[tuple[int, int]] = []
    monkeypatch.setattr("os.kill", lambda *arguments: kills.append(arguments))
    before = signal.signal(number, signal.SIG_DFL)
    try:
        clock = Clock()
        _send(SignalGuard(on_terminate=True, clock=clock), clock, [(number, 0.0)])
        handler = signal.getsignal(number)
        assert callable(handler)
        clock.now += 4.5
        handler(number, None)
        assert not kills
        clock.now += 0.5
        handler(number, None)
        assert kills == [(os.getpid(), number)]
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_second_interrupt_leaves_at_once_even_within_five_seconds() -> None:
    clock = Clock()
    guard = SignalGuard(on_terminate=True, clock=clock)
    with pytest.raises(KeyboardInterrupt):
        _send(guard, clock, [(signal.SIGTERM, 0.0), (signal.SIGINT, 0.0)])


def test_signal_after_a_notice_is_the_first_signal() -> None:
    clock = Clock()
    notices = PreemptionConfig(signals=["SIGUSR1"])
    guard = SignalGuard(on_terminate=True, preemption=notices, clock=clock)
    _send(guard, clock, [(signal.SIGUSR1, 0.0), (signal.SIGTERM, 60.0)])
    assert (guard.received, guard.notice) == (signal.SIGTERM, "SIGUSR1")


def test_handlers_of_other_signals_are_restored() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    guard = SignalGuard(on_terminate=True, preemption=PreemptionConfig(signals=["SIGUSR1"]))
    with guard.installed_scope():
        assert signal.getsignal(signal.SIGUSR1) != before
    assert signal.getsignal(signal.SIGUSR1) == before


@pytest.mark.parametrize(
    ("changes", "notice"),
    [
        ({"file": "{}/notice"}, "the file {}/notice exists"),
        ({"command": "test -e {}/notice"}, "runtime.preemption.command succeeded"),
    ],
    ids=["file", "command"],
)
def test_notice_is_seen_when_it_appears(
    changes: dict[str, str], notice: str, tmp_path: Path
) -> None:
    found: list[str] = []
    filled = {name: value.format(tmp_path) for name, value in changes.items()}
    watch = PreemptionWatch(PreemptionConfig(poll_interval=0.01, **filled), found.append)
    with watch.running_scope():
        time.sleep(0.1)
        assert not found
        (tmp_path / "notice").touch()
        _wait_for(lambda: bool(found))
    assert found == [notice.format(tmp_path)]


def _wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_command_that_the_shell_cannot_run_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    preemption = PreemptionConfig(command="no-such-command", poll_interval=0.01)
    watch = PreemptionWatch(preemption, pytest.fail)
    for _ in range(2):
        assert watch._notice() == ""
    said = [record.message for record in caplog.records]
    assert said == [
        "warning: runtime.preemption.command: the shell cannot run it (exit code 127); "
        "a notice would not be seen"
    ]


class CreateNotice(Callback):
    """Creates a notice's file at the end of a loop, and waits until the guard has seen it."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def on_loop_end(self, run: Any, logs: object) -> None:
        self._file.touch()
        _wait_for(lambda: bool(run.stops.signals.received))


@pytest.mark.slow
def test_notice_saves_and_the_next_start_continues(tmp_path: Path) -> None:
    notice = tmp_path / "notice"
    changes = {**OFTEN, "runtime__preemption__file": str(notice)}
    with raises("interrupted") as caught:
        run(toy_config(**changes), tmp_path / "parts", callbacks=[CreateNotice(notice)])
    assert caught.value.exit_code == 143
    [step] = CheckpointFolder(tmp_path / "parts" / "checkpoints").steps()
    assert step < 20

    notice.unlink()
    resumed, _ = run(toy_config(**changes), tmp_path / "parts")
    whole, _ = run(toy_config(), tmp_path / "whole")
    assert weights_fingerprint(resumed) == weights_fingerprint(whole)


def test_signal_that_cannot_be_a_notice_is_an_error() -> None:
    override = "runtime.preemption.signals=[SIGUSR3, SIGKILL]"
    with pytest.raises(ConfigError) as caught:
        resolve(Request(experiment="digits", params_overrides=(override,)))
    text = str(caught.value)
    assert "unknown signal 'SIGUSR3'" in text
    assert "unknown signal 'SIGKILL'" in text
    assert "runtime.preemption.signals" in text
