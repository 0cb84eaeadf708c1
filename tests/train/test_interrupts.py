"""Signals, as the loop sees them."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.train.callbacks.base import Callback
from orbit_runner.train.stop_requests import (
    LeftAtOnce,
    SignalGuard,
)
from tests.support.problems import raises
from tests.support.toy import run, toy_config


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


def test_handlers_from_before_are_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    guard = SignalGuard(on_terminate=True)
    with guard.installed_scope():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


class Terminate(Callback):
    """Sends SIGTERM to the process at the end of each loop."""

    def on_loop_end(self, run: Any, logs: object) -> None:
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.slow
def test_sigterm_saves_and_the_next_start_continues(tmp_path: Path) -> None:
    with raises("interrupted") as caught:
        run(toy_config(), tmp_path / "parts", callbacks=[Terminate()])
    assert caught.value.exit_code == 143
    [step] = CheckpointFolder(tmp_path / "parts" / "checkpoints").steps()
    assert step < 20

    resumed, _ = run(toy_config(), tmp_path / "parts")
    whole, _ = run(toy_config(), tmp_path / "whole")
    assert weights_fingerprint(resumed) == weights_fingerprint(whole)
