"""Fixtures of the command-line tests: rejected commands, and an environment without tensorflow."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.processes import runner


@pytest.fixture
def without_tensorflow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which importing tensorflow ends the process."""
    folder = tmp_path_factory.mktemp("no_tensorflow")
    (folder / "tensorflow.py").write_text("raise SystemExit('tensorflow was imported')\n")
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)}


@pytest.fixture
def no_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes importing tensorflow in this process fail, also if it has been imported."""
    monkeypatch.setitem(sys.modules, "tensorflow", None)


@pytest.fixture
def run(finished_run: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, to be changed."""
    return Path(shutil.copytree(finished_run, tmp_path / "a"))


@pytest.fixture
def refused(tmp_path: Path, without_tensorflow: dict[str, str]) -> Callable[..., str]:
    """Runs a command that must be rejected without tensorflow; returns its error message."""

    def run(*arguments: str) -> str:
        completed = runner(*arguments, cwd=tmp_path, env=without_tensorflow)
        assert (completed.returncode, completed.stdout) == (2, ""), completed.stderr
        assert "Traceback" not in completed.stderr
        message = completed.stderr[completed.stderr.index("runner: ") :]
        assert len(message.splitlines()) <= 10
        return message

    return run
