"""Heartbeats: a process that trains reports to the launcher the last step that it has finished.

They go through a pipe, whose descriptor the launcher passes in an environment variable. Each line
is a step, or `-` outside of training: evaluations, saves and exports may take as long as they need.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

VARIABLE = "ORBIT_RUNNER_HEARTBEAT"
_PAUSE = "-"
_SECONDS_BETWEEN_STEPS = 1.0
_SECONDS_BETWEEN_CHECKS = 10.0  # at most, unless the launcher is suspended
_BYTES = 1 << 16


class Heartbeat:
    """The end of the pipe to which a process writes, or nothing if no launcher reads.

    If the process trains, but finishes no step for `seconds` (0 for no limit), it writes where its
    threads are to the file `log`.
    """

    def __init__(self, descriptor: int | None = None, seconds: float = 0.0, log: str = "") -> None:
        self._descriptor = descriptor
        self._seconds = seconds
        self._last_beat = -math.inf
        self._log = _open_log(log) if seconds else None

    @classmethod
    def from_environment(cls) -> Heartbeat:
        """Returns the heartbeat to the launcher that started this process, if there is one."""
        # Removed, because the processes that this process starts do not have the descriptor.
        text = os.environ.pop(VARIABLE, None)
        if text is None:
            return cls()
        heartbeat = cls(**json.loads(text))
        assert heartbeat._descriptor is not None
        os.set_blocking(heartbeat._descriptor, False)
        os.set_inheritable(heartbeat._descriptor, False)
        return heartbeat

    @contextlib.contextmanager
    def training_scope(self, read_step: Callable[[], int]) -> Iterator[None]:
        """Lets the launcher expect steps in a `with` block. `read_step` returns the last step."""
        self._last_beat = -math.inf
        self.beat(read_step)
        try:
            yield
        finally:
            self._write(_PAUSE)
            if self._log is not None:
                faulthandler.cancel_dump_traceback_later()

    def beat(self, read_step: Callable[[], int]) -> None:
        """Reports the last finished step, at most once in a second."""
        now = time.monotonic()
        if self._descriptor is None or now - self._last_beat < _SECONDS_BETWEEN_STEPS:
            return
        self._last_beat = now
        self._write(str(read_step()))
        if self._log is not None:
            faulthandler.dump_traceback_later(self._seconds, file=self._log)

    def _write(self, text: str) -> None:
        if self._descriptor is not None:
            # The pipe may be full, and the launcher may have ended.
            with contextlib.suppress(OSError):
                os.write(self._descriptor, f"{text}\n".encode())


def _open_log(path: str) -> IO[str] | None:
    try:
        return Path(path).open("a", encoding="utf-8")
    except OSError:
        return None


class HeartbeatReader:
    """The end of the pipe from which the launcher reads.

    `seconds` is the longest time of a step, 0 for no limit. `last_step` is the last step that the
    process has reported, -1 if there is none.
    """

    def __init__(
        self, seconds: float, log: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.seconds = seconds
        self._log = log
        self._clock = clock
        self._since = self._checked = clock()
        self.last_step = -1
        self._is_training = False
        self._rest = b""
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)

    def environ(self) -> Mapping[str, str]:
        """Returns the environment variable for the process, which must inherit `write_end`."""
        values = {"descriptor": self.write_end, "seconds": self.seconds, "log": str(self._log)}
        return {VARIABLE: json.dumps(values)}

    def close_write_end(self) -> None:
        """Closes the end for writing in this process, after the other process has started."""
        os.close(self.write_end)

    def close(self) -> None:
        """Reads what is left, and closes the end for reading."""
        if self._read_end >= 0:
            self._read_steps(self._clock())
            os.close(self._read_end)
            self._read_end = -1

    def stalled_step(self) -> int | None:
        """Returns the last finished step if the next takes longer than `seconds`, else None."""
        now = self._clock()
        gap = now - self._checked
        self._checked = now
        if gap > _SECONDS_BETWEEN_CHECKS:  # The launcher was suspended, and perhaps all processes.
            self._since += gap
        self._read_steps(now)
        stalls = self._is_training and 0 < self.seconds < now - self._since
        return self.last_step if stalls else None

    def _read_steps(self, now: float) -> None:
        received = b""
        if self._read_end >= 0:
            with contextlib.suppress(BlockingIOError):
                received = os.read(self._read_end, _BYTES)
        *lines, self._rest = (self._rest + received).split(b"\n")
        if lines:
            steps = [int(line) for line in lines if line != _PAUSE.encode()]
            self.last_step = max(steps, default=self.last_step)
            self._is_training = lines[-1] != _PAUSE.encode()
            self._since = now
