"""A cluster with parameter servers on this machine: real processes, started and killed by tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.clusters.members import addresses

ROOT = Path(__file__).parents[2]


def content(image: Any, label: Any) -> Any:
    """Returns a number that hardly any two batches share, int64 scalar."""
    import tensorflow as tf

    pixels = tf.reshape(tf.cast(image, tf.int64), [-1])
    places = tf.range(1, tf.size(pixels, tf.int64) + 1)
    return tf.reduce_sum(pixels * places) * 1009 + tf.reduce_sum(tf.cast(label, tf.int64))


class Servers:
    """Workers and parameter servers, each in its own directory."""

    def __init__(self, folder: Path, workers: int, ps: int) -> None:
        self.jobs = addresses(worker=workers, ps=ps)
        self._folder = folder
        self._running: dict[tuple[str, int], subprocess.Popen[bytes]] = {}
        for role, members in self.jobs.items():
            for index in range(len(members)):
                self.start(role, index)

    def folder(self, role: str, index: int) -> Path:
        return self._folder / f"{role}{index}"

    def start(self, role: str, index: int) -> None:
        self.folder(role, index).mkdir(exist_ok=True)
        command = [sys.executable, str(Path(__file__).with_name("served_server.py"))]
        with open(self.folder(role, index) / "log.txt", "ab") as log:
            self._running[role, index] = subprocess.Popen(
                [*command, json.dumps(self.jobs), role, str(index)],
                cwd=self.folder(role, index),
                stdout=log,
                stderr=log,
            )

    def signal(self, role: str, index: int, number: int = signal.SIGKILL) -> None:
        self._running[role, index].send_signal(number)
        if number == signal.SIGKILL:
            self._running[role, index].wait()

    def batches(self, index: int) -> list[list[int]]:
        """Returns what a worker recorded about its batches, and deletes the record."""
        notes = self.folder("worker", index) / "batches.txt"
        lines = notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []
        notes.unlink(missing_ok=True)
        return [[int(number) for number in line.split()] for line in lines]

    def stop(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()


class Chief:
    """A running chief process."""

    def __init__(
        self, servers: Servers, model_dir: Path, mode: str = "train", **order: Any
    ) -> None:
        changes = {key: order.pop(key) for key in list(order) if "__" in key}
        jobs = {**addresses(chief=1), **servers.jobs}
        model_dir.mkdir(parents=True, exist_ok=True)
        # A relative path, which means another directory where the servers run.
        place = os.path.relpath(model_dir, ROOT)
        order |= {"jobs": jobs, "model_dir": place, "mode": mode, "changes": changes}
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.served_chief", json.dumps(order)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        self.events: list[dict[str, Any]] = []
        self.began = time.monotonic()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.events.append(json.loads(line))
                yield self.events[-1]

    def until(self, reached: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        for event in self:
            if reached(event):
                return event
        raise AssertionError(f"the chief ended before that: {self.events[-3:]}")

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def finish(self) -> tuple[int, dict[str, Any]]:
        """Waits for the end; returns the exit code and the last event."""
        for _ in self:
            pass
        return self._process.wait(), self.events[-1]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
