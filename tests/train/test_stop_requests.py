"""Signals, as the loop sees them, and what workers must agree on before any of them continues."""

import os
import signal
from types import SimpleNamespace

import pytest

from orbit_runner.train.stop_requests import StopRequests, StopTraining
from orbit_runner.utils.signals import LeftAtOnce, SignalGuard
from tests.support.problems import raises

OTHER = "a callback on another worker requested a stop"


def _requests(*, chief, others, received=None, acknowledge=lambda: None):
    """The requests of a worker; the other workers add `others` to its values."""

    def all_reduce_sum(values):
        return [int(own) + other for own, other in zip(values, others, strict=True)]

    workers = SimpleNamespace(
        is_chief=chief,
        all_reduce_sum=all_reduce_sum,
        all=lambda fact: not all_reduce_sum([not fact])[0],
        acknowledge=acknowledge,
    )
    signals = SimpleNamespace(received=received, notice="")
    return StopRequests(workers, signals, list)


@pytest.mark.parametrize(("chief", "others"), [(True, [0] * 5), (False, [31, *[0] * 4])])
def test_loop_length_is_that_of_the_chief(chief, others):
    own = 31 if chief else 12

    assert _requests(chief=chief, others=others).next_loop_length(own, 7, pytest.fail) == 31


@pytest.mark.parametrize(
    ("received", "others", "code"),
    [
        (signal.SIGTERM, [0, 0, 0], 143),
        (None, [0, 1, 0], 143),
        (None, [1, 0, 0], 130),
        (None, [0, 0, 1], 129),
        (signal.SIGINT, [0, 1, 0], 130),
    ],
)
def test_signal_to_one_worker_makes_all_workers_save_and_exit(received, others, code):
    done = []
    requests = _requests(
        chief=False,
        others=[0, 0, *others],
        received=received,
        acknowledge=lambda: done.append("acknowledged"),
    )
    with raises("interrupted") as caught:
        requests.next_loop_length(5, 7, lambda: done.append("saved"))

    assert caught.value.exit_code == code
    # A worker that left at once would abort the agreement with which the others end their save.
    assert done == ["saved", "acknowledged"]


def test_callback_on_one_worker_stops_all_workers():
    requests = _requests(chief=False, others=[31, 1, *[0] * 3])
    with pytest.raises(StopTraining):
        requests.next_loop_length(5, 7, pytest.fail)
    assert requests.reason == OTHER


@pytest.mark.parametrize(("others", "reason"), [([0], ""), ([1], OTHER)])
def test_workers_agree_to_stop_before_they_evaluate_or_save(others, reason):
    assert _requests(chief=True, others=others).agree_on_stop() == reason


class Clock:
    """A clock that the test sets."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def test_loop_ends_at_a_pause_that_is_ahead():
    stops = _requests(chief=True, others=[])
    stops.pause_at(13)
    assert [stops.limit(step, 30) for step in (0, 12, 13, 20)] == [13, 13, 30, 30]


# Signals.


def _send(guard, clock, signals):
    """Sends signals, each after some seconds."""
    # A signal that is ignored, as under `nohup`, stays ignored.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with guard.installed_scope():
        for number, seconds in signals:
            clock.now += seconds
            signal.raise_signal(number)


@pytest.mark.promise("faults", "a second signal leaves at once, and complete checkpoints stay")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_second_signal_leaves_at_once(number):
    clock = Clock()
    guard = SignalGuard(raises=True, clock=clock)
    _send(guard, clock, [(number, 0.0), (number, 4.5)])  # To the process and to its group.
    assert guard.received == number
    with pytest.raises(LeftAtOnce, match="nothing has been saved") as caught:
        _send(guard, clock, [(number, 0.5)])
    assert caught.value.exit_code == 128 + number


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_second_signal_of_a_request_does_not_kill_a_run_that_has_saved(number, monkeypatch):
    kills = []
    monkeypatch.setattr("os.kill", lambda *arguments: kills.append(arguments))
    before = signal.signal(number, signal.SIG_DFL)
    try:
        clock = Clock()
        _send(SignalGuard(raises=True, clock=clock), clock, [(number, 0.0)])
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


def test_second_interrupt_leaves_at_once_even_within_five_seconds():
    clock = Clock()
    guard = SignalGuard(raises=True, clock=clock)
    with pytest.raises(KeyboardInterrupt):
        _send(guard, clock, [(signal.SIGTERM, 0.0), (signal.SIGINT, 0.0)])
