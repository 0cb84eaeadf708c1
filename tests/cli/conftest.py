"""Fixtures of the command-line tests: a run to be changed, and no tensorflow."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest


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
