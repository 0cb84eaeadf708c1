"""Trackers that the tests name in configs."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orbit_runner import RunInfo, Tracker

release = threading.Event()  # lets a tracker that hangs continue


class FileTracker(Tracker):
    """Appends what it is given to a file."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def start(self, run: RunInfo) -> str:
        run_id = run.previous_id or "first"
        self._add(event="start", id=run_id, step=run.step, mode=run.mode, name=run.name,
                  sections=sorted({name.partition(".")[0] for name in run.settings}),
                  config=run.config)  # fmt: skip
        return run_id

    def log(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        self._add(event="log", step=step, split=split, metrics=dict(metrics))

    def finish(self, status: str, results: Mapping[str, str]) -> None:
        self._add(event="finish", status=status, results=dict(results))

    def _add(self, **line: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


class FailingTracker(Tracker):
    """Raises an error in one method."""

    def __init__(self, method: str) -> None:
        self._method = method
        self._fail_in("__init__")

    def start(self, run: RunInfo) -> None:
        self._fail_in("start")

    def log(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        self._fail_in("log")

    def flush(self) -> None:
        self._fail_in("flush")

    def finish(self, status: str, results: Mapping[str, str]) -> None:
        self._fail_in("finish")

    def _fail_in(self, method: str) -> None:
        if method == self._method:
            raise RuntimeError(f"broken in {method}")


class ExitingTracker(Tracker):
    """Tries to end the process."""

    def start(self, run: RunInfo) -> None:
        raise SystemExit("leaving")


class HangingTracker(Tracker):
    """Does not return from `log` until it is released."""

    def log(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        release.wait()


class NoTracker:
    """Is not a tracker."""
