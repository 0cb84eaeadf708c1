"""A callback that holds a run until a test has sent its signal."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orbit_runner.train.callbacks.base import Callback
from tests.support.launches import wait_for

NAME = "tests.support.hold.Hold"
ROOT = Path(__file__).parents[2]
_DIRECTORY = "ORBIT_TESTS_HOLD"


def hold_environ(directory: Path) -> dict[str, str]:
    """Returns the variables that a held process needs: where its signals are, and this module."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {_DIRECTORY: str(directory), "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def is_held(directory: Path) -> bool:
    """Returns whether a run waits at the end of its first loop."""
    return (directory / "held").exists()


def release(directory: Path) -> None:
    """Lets the held run continue, and all later ones."""
    (directory / "released").touch()


class Hold(Callback):
    """Waits at the end of a loop until the test calls `release`."""

    def on_loop_end(self, run: Any, logs: Mapping[str, Any]) -> None:
        """Waits. A signal is stored meanwhile, and ends the run after this call."""
        if run.model_dir.name == "probe":  # A sweep trains one step before its first trial.
            return
        directory = Path(os.environ[_DIRECTORY])
        if not (directory / "released").exists():
            (directory / "held").touch()
            wait_for((directory / "released").exists)  # Not forever: the test may have failed.
