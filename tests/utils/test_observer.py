"""Every event reaches every observer."""

import inspect
from typing import Any

import pytest

from orbit_runner.utils.observer import Observer, Observers

EVENTS = [name for name, value in vars(Observer).items() if inspect.isfunction(value)
          and not name.startswith("_")]  # fmt: skip


class Recorder(Observer):
    def __init__(self, heard: list[Any], name: str) -> None:
        for event in EVENTS:
            setattr(self, event, lambda *args, event=event: heard.append((name, event, args)))


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_is_passed_on_in_order(event: str) -> None:
    heard: list[Any] = []
    arguments = [*range(len(inspect.signature(getattr(Observer, event)).parameters) - 1)]
    getattr(Observers(Recorder(heard, "a"), Recorder(heard, "b")), event)(*arguments)
    assert heard == [("a", event, (*arguments,)), ("b", event, (*arguments,))]


@pytest.mark.parametrize("event", EVENTS)
def test_an_observer_need_not_listen(event: str) -> None:
    arguments = [*range(len(inspect.signature(getattr(Observer, event)).parameters) - 1)]
    assert getattr(Observer(), event)(*arguments) is None


def test_several_observers_record_data_if_one_of_them_does() -> None:
    recording = Observer()
    recording.records_data = True
    assert Observers(Observer(), recording).records_data
    assert not Observers(Observer(), Observer()).records_data
