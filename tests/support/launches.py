"""Launchers as processes, with members that do what a test says."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LAUNCHER = str(Path(__file__).with_name("launcher.py"))
# A limit for what hangs; on a busy machine, starting alone takes seconds.
SECONDS = 600.0


def wait_for(condition: Callable[[], Any], seconds: float = SECONDS) -> Any:
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, "timed out waiting for the condition"
        time.sleep(0.02)
    return result


class Launch:
    """A running launcher, and the files that its members leave."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, LAUNCHER, json.dumps(settings)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.out = self.err = ""

    def end(self, seconds: float = SECONDS) -> int:
        self.out, self.err = self.process.communicate(timeout=seconds)
        return self.process.returncode

    def note(self) -> str:
        """Waits for the first line of the launcher; `err` then has the rest."""
        assert self.process.stderr is not None
        return self.process.stderr.readline().partition(" │ ")[2].rstrip()

    @property
    def notes(self) -> list[str]:
        """The lines of the launcher itself."""
        lines = (line.partition(" │ ") for line in self.err.splitlines())
        return [text for name, _, text in lines if name.strip() == "launcher"]

    def lives(self, name: str) -> list[dict[str, Any]]:
        try:
            lines = (self.folder / f"{name}.lives").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines]

    def pid(self, name: str, life: int = 1) -> int:
        """Waits for the given life of a member, and returns its process id."""
        return wait_for(lambda: len(self.lives(name)) >= life and self.lives(name)[life - 1])["pid"]

    def waits(self, *names: str) -> None:
        """Waits until members catch signals."""
        for name in names:
            wait_for((self.folder / f"{name}.waits").exists)

    def pids(self) -> list[int]:
        files = self.folder.glob("*.lives")
        return [json.loads(line)["pid"] for f in files for line in f.read_text().splitlines()]


def alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"
