"""Kills a run with SIGKILL at chosen moments and restarts it until it is finished."""

from __future__ import annotations

import json
import queue
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support import warm_runner

# What the run is doing when it is killed; the rest of the time it is training.
MOMENTS = ("training", "saving", "restoring", "evaluating")
_LINE_SECONDS = 180.0


def command(arguments: list[str], folder: Path) -> list[str]:
    return [*arguments, f"--model_dir={folder}", "--progress=plain", "--json"]


def unkilled(arguments: list[str], folder: Path) -> dict[str, Any]:
    completed = warm_runner.run(*command(arguments, folder), timeout=900)
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout)


def killed(attempts: Iterator[list[str]], folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """Runs to the end, with a number of kills on the way.

    Args:
        attempts: The arguments of each start.
        folder: The run directory.
        kills: How often the run is killed.
        seed: Decides the exact moments.

    Returns:
        The results, with `deaths`: what the run was doing each time it was killed.
    """
    rng, deaths = random.Random(seed), list[str]()
    while len(deaths) < kills:
        moment = MOMENTS[len(deaths) % len(MOMENTS)]
        life = _Life(command(next(attempts), folder))
        reached = life.dies_while(moment, folder, rng)
        assert reached, f"the run ended after {len(deaths)} of {kills} kills: train longer\n{life}"
        deaths.append(f"{moment}: {life.last_line}")
        print(f"  kill {len(deaths)}/{kills} while {deaths[-1]}", file=sys.stderr, flush=True)
    return {**unkilled(next(attempts), folder), "deaths": deaths}


class _Life:
    """One process of the run."""

    def __init__(self, arguments: list[str]) -> None:
        self._process = warm_runner.start(*arguments, stdout=subprocess.DEVNULL)
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.said: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def __str__(self) -> str:
        return "\n".join(self.said)

    @property
    def last_line(self) -> str:
        return self.said[-1] if self.said else "no output yet"

    def _read(self) -> None:
        for line in self._process.stderr:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def dies_while(self, moment: str, folder: Path, rng: random.Random) -> bool:
        """Kills the process at the given moment; returns False if it ended before."""
        reached = self._waits_for(moment, folder, rng)
        if reached and self._process.poll() is None:
            self._process.kill()
            return self._process.wait() == -9
        self._process.wait()
        return False

    def _waits_for(self, moment: str, folder: Path, rng: random.Random) -> bool:
        if moment == "restoring":
            return self._hears("building the model", 1) and _waits(rng.uniform(0.0, 1.5))
        if not self._hears("training from step", 1):
            return False
        if moment == "evaluating":
            heard = self._hears("evaluating at step", rng.randint(1, 4))
            return heard and _waits(rng.uniform(0.0, 0.03))
        if moment == "saving":
            return self._saves(folder, rng.randint(1, 5)) and _waits(rng.uniform(0.0, 0.02))
        return _waits(rng.uniform(0.0, 4.0))

    def _hears(self, words: str, times: int) -> bool:
        while times:
            line = self._lines.get(timeout=_LINE_SECONDS)
            if line is None:
                return False
            self.said.append(line)
            times -= words in line
        return True

    def _saves(self, folder: Path, times: int) -> bool:
        """Waits for the temporary directories in which checkpoints are written."""
        seen: set[str] = set()
        while self._process.poll() is None:
            seen |= {path.name for path in (folder / "checkpoints").glob(".writing-*")}
            if len(seen) >= times:
                return True
            time.sleep(0.0005)
        return False


def _waits(seconds: float) -> bool:
    time.sleep(seconds)
    return True
