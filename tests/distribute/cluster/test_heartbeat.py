"""Heartbeats through a pipe: when a process counts as stalled."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbit_runner.distribute.cluster.heartbeat import VARIABLE, Heartbeat, HeartbeatReader


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Pipe:
    """Both ends of a pipe, with a step of at most 30 seconds."""

    def __init__(self, log: Path) -> None:
        self.clock = Clock()
        self.reader = HeartbeatReader(30.0, log, self.clock)
        self.descriptor = os.dup(self.reader.write_end)
        self.reader.close_write_end()

    def send(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def stalled_step(self, *, after: float) -> int | None:
        """Checks every five seconds, as a launcher checks again and again."""
        end, step = self.clock.now + after, self.reader.stalled_step()
        while self.clock.now < end:
            self.clock.now = min(self.clock.now + 5.0, end)
            step = self.reader.stalled_step()
        return step


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    pipe = Pipe(tmp_path / "log")
    yield pipe
    os.close(pipe.descriptor)
    pipe.reader.close()


def test_process_stalls_if_no_step_follows_in_time(pipe: Pipe) -> None:
    pipe.send("6\n7\n")
    assert pipe.stalled_step(after=29) is None
    assert pipe.stalled_step(after=2) == 7
    pipe.send("8\n")
    assert pipe.stalled_step(after=29) is None


def test_process_that_does_not_train_never_stalls(pipe: Pipe) -> None:
    assert pipe.stalled_step(after=100) is None
    pipe.send("7\n-\n")
    assert pipe.stalled_step(after=100) is None


def test_half_a_line_is_read_with_its_rest(pipe: Pipe) -> None:
    pipe.send("1")
    assert pipe.stalled_step(after=5) is None
    pipe.send("2\n")
    assert pipe.stalled_step(after=31) == 12


def test_time_in_which_the_launcher_was_suspended_does_not_count(pipe: Pipe) -> None:
    pipe.send("7\n")
    assert pipe.stalled_step(after=5) is None
    pipe.clock.now += 3600
    assert pipe.reader.stalled_step() is None
    assert pipe.stalled_step(after=31) == 7


def test_steps_are_sent_once_a_second_and_the_end_of_training_at_once(
    pipe: Pipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"descriptor": os.dup(pipe.descriptor), "seconds": 30.0, "log": str(tmp_path / "log")}
    monkeypatch.setenv(VARIABLE, json.dumps(values))
    heartbeat = Heartbeat.from_environment()
    assert VARIABLE not in os.environ
    steps = iter(range(3, 100))
    with heartbeat.training_scope(lambda: next(steps)):
        for _ in range(50):
            heartbeat.beat(lambda: next(steps))
        assert pipe.stalled_step(after=31) == 3
    assert pipe.stalled_step(after=100) is None
    os.close(values["descriptor"])


def test_process_without_a_launcher_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    heartbeat = Heartbeat.from_environment()
    with heartbeat.training_scope(_read_no_step):
        heartbeat.beat(_read_no_step)


def _read_no_step() -> int:
    raise AssertionError("reading the step of parameter servers takes time")
