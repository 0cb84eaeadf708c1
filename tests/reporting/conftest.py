import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.repository import commit, git


def run_of(**changes: Any) -> SimpleNamespace:
    values: dict[str, Any] = {
        "step": 0,
        "train_steps": 64_000,
        "steps_per_epoch": 390.625,
        "examples_per_step": 128.0,
        "best": SimpleNamespace(result=lambda: ("accuracy", 0.8431, 11_200)),
        "inexact_reasons": list,
    }
    return SimpleNamespace(**{**values, **changes})


@pytest.fixture
def make_run() -> Callable[..., SimpleNamespace]:
    """Returns the part of a run that progress displays read."""
    return run_of


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository on branch `main` with one commit; the current directory."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    root = tmp_path / "repository"
    (root / "pkg").mkdir(parents=True)
    (root / "pkg/model.py").write_text("depth = 1\n")
    (root / "notes.txt").write_text("one\ntwo\n")
    git("init", "-q", "--initial-branch=main", cwd=root)
    commit(root)
    monkeypatch.chdir(root)
    return root
