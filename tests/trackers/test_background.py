"""The thread of a tracker: retries, the queue, and the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from orbit_runner.trackers.base import RunInfo, Tracker
from orbit_runner.trackers.tracking import BackgroundTracker, TrackerIds
from orbit_runner.utils.log import PlainMessages, log_scope

INFO = RunInfo(name="a", mode="train", directory=Path(), settings={}, config="", step=0,
               previous_id=None)  # fmt: skip


class Recording(Tracker):
    """Fails a given number of times before it starts, and stores what it receives."""

    def __init__(self, failures: int = 0, error: Callable[[str], BaseException] = OSError) -> None:
        self.failures, self.error = failures, error
        self.attempts = 0
        self.steps: list[int] = []
        self.flushed: list[int] = []
        self.status = ""

    def start(self, run: RunInfo) -> str:
        self.attempts += 1
        if self.attempts <= self.failures:
            raise self.error("https://me:secret@host is down")
        return "id"

    def log(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        assert split == "train"
        assert metrics == {"loss": 0.5}
        self.steps.append(step)

    def flush(self) -> None:
        self.flushed.append(len(self.steps))

    def finish(self, status: str, results: Mapping[str, str]) -> None:
        self.status = status


@pytest.fixture
def notes():
    messages: list[str] = []
    with log_scope(PlainMessages(messages.append)):
        yield messages


def _run(tracker: Tracker, steps: int, *, wait: float = 60.0, max_waiting: int = 100) -> list[str]:
    ids: list[str] = []
    background = BackgroundTracker(
        "mine", lambda: tracker, advice="call for help", max_waiting=max_waiting, first_pause=0.01
    )
    background.log([(step, "train", {"loss": 0.5, "text": "no"}) for step in range(steps)])
    background.start(INFO, ids.append)
    if isinstance(tracker, Recording):
        limit = time.monotonic() + 60
        while tracker.attempts <= tracker.failures and time.monotonic() < limit:
            time.sleep(0.01)
            if tracker.error is ImportError:
                break
    background.end("finished", {})
    background.wait(time.monotonic() + wait)
    return ids


def test_records_arrive_in_order_and_are_flushed(notes):
    tracker = Recording()

    ids = _run(tracker, 5)

    assert (ids, tracker.steps, tracker.flushed[-1]) == (["id"], [*range(5)], 5)
    assert tracker.status == "finished"
    assert notes == []


@pytest.mark.parametrize("error", [OSError, SystemExit, KeyError])
def test_failing_tracker_is_called_again_and_reported_once(error, notes):
    tracker = Recording(failures=3, error=error)

    _run(tracker, 5)

    assert tracker.steps == [*range(5)]
    assert tracker.status == "finished"
    assert len(notes) == 2
    assert notes[0].startswith(f"warning: tracker mine: {getattr(error, '__name__', '')}: ")
    assert notes[0].endswith("trying again; training is not affected\n  call for help")
    assert "host is down" in notes[0]
    assert "secret" not in notes[0]
    assert notes[1] == "tracker mine: works again"


def test_tracker_whose_package_is_missing_is_switched_off(notes):
    tracker = Recording(failures=100, error=ImportError)

    _run(tracker, 5)

    assert tracker.attempts == 1
    assert "switched off" in notes[0]
    assert notes[1:] == [
        "warning: tracker mine: 5 records could not be sent; metrics.jsonl has them"
    ]


def test_full_queue_drops_records_and_reports_their_number(notes):
    tracker = Recording()

    _run(tracker, 8, max_waiting=5)

    assert tracker.steps == [*range(5)]
    assert notes == ["warning: tracker mine: 3 records could not be sent; metrics.jsonl has them"]


def test_hanging_tracker_does_not_delay_the_end(notes):
    release = threading.Event()

    class Hanging(Tracker):
        def flush(self) -> None:
            release.wait()

    _run(Hanging(), 2, wait=0.2)
    release.set()

    assert notes == [
        "warning: tracker mine: 2 records could not be sent: it did not answer in time; "
        "metrics.jsonl has them"
    ]


def test_ids_survive_and_do_not_recreate_a_removed_directory(tmp_path):
    path = tmp_path / "run" / "trackers.json"
    TrackerIds(path).put("a", "1")
    assert not path.parent.exists()

    path.parent.mkdir()
    ids = TrackerIds(path)
    ids.put("a", "1")
    ids.put("b", "2")
    assert (TrackerIds(path).get("a"), TrackerIds(path).get("b")) == ("1", "2")

    path.write_text("{damaged")
    assert TrackerIds(path).get("a") is None
