"""Fixtures of the command-line tests: rejected commands, and an environment without tensorflow."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import warm_runner
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
def run(made: Path, tmp_path: Path) -> Path:
    """A copy of the run `made` of a test file, to be changed."""
    return Path(shutil.copytree(made, tmp_path / "a"))


@pytest.fixture
def refused() -> Callable[..., str]:
    """Runs a command that must be rejected, and returns its error message."""
    return _refused


def _refused(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> str:
    if env is None:
        done = warm_runner.run(*arguments, cwd=folder)
    else:
        done = runner(*arguments, cwd=folder, env=env)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("runner: ") or "\nrunner: " in done.stderr
    said = done.stderr[done.stderr.index("runner: ") :]
    assert len(said.splitlines()) <= 10
    return said
