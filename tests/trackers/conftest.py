"""Fixtures of the tests of trackers."""

from __future__ import annotations

import pytest


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a run wait for its trackers, however slow this machine is."""
    monkeypatch.setattr("orbit_runner.trackers.tracking._WAIT", 600.0)
    monkeypatch.setattr("orbit_runner.trackers.tracking._WAIT_AFTER_ERROR", 600.0)
