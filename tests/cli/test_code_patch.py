"""The code and the changed settings in `run.json`, from real runs in a git repository."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm_runner
from tests.support.repository import git

pytestmark = pytest.mark.slow
ARGUMENTS = [
    "--experiment=digits_mlp",
    "--config_file=quick.yaml",
    "--train_steps=2",
    "--trainer.checkpoint_interval=2",
    # TensorFlow fixes the thread settings of the test process at its first op.
    "--runtime.intra_op_threads=0",
    "--model_dir=runs/a",
]


def train(cwd: Path, *arguments: str) -> None:
    completed = warm_runner.run(*ARGUMENTS, *arguments, cwd=cwd)
    assert completed.returncode == 0, completed.stderr


def attempts_of(run: Path) -> list[dict[str, Any]]:
    return list(json.loads((run / "run.json").read_text())["attempts"])


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository with changes, and a run that was resumed with other changes."""
    root = tmp_path_factory.mktemp("repository")
    (root / "model.py").write_text("depth = 1\n")
    git("init", "-q", "--initial-branch=main", cwd=root)
    git("add", "--all", cwd=root)
    git("commit", "-q", "-m", "first", cwd=root)
    (root / "model.py").write_text("depth = 2\n")
    (root / "quick.yaml").write_text("trainer: {summary_interval: 1, max_to_keep: 3}\n")
    git("add", "quick.yaml", cwd=root)
    train(
        root,
        "--params_override=trainer.continuous_eval_timeout=7",
        "--gin_param=trainer.max_to_keep=4",
    )
    (root / "model.py").write_text("depth = 3\n")
    train(root, "--train_steps=4")
    return root


def test_each_start_records_its_code_its_experiment_and_changes(repository):
    first, second = attempts_of(repository / "runs/a")
    assert first["code"]["revision"] == git("rev-parse", "HEAD", cwd=repository)
    assert {*first["code"]["changed"]} == {"model.py", "quick.yaml"}
    assert "+depth = 3\n" in (repository / "runs/a" / second["code"]["patch"]).read_text()
    common = {"trainer.summary_interval": 1, "trainer.checkpoint_interval": 2}
    common["runtime.intra_op_threads"] = 0
    more = {
        "trainer.max_to_keep": 4,
        "trainer.continuous_eval_timeout": 7,
        "trainer.train_steps": 2,
    }
    assert (first["experiment"], first["train_steps"]) == ("digits_mlp", 2)
    assert first["changes"] == common | more
    assert (second["experiment"], second["train_steps"]) == ("digits_mlp", 4)
    assert second["changes"] == common | {"trainer.max_to_keep": 3, "trainer.train_steps": 4}


def test_reproduce_reports_changed_code(repository):
    # In processes of their own, like the runs: threads and oneDNN affect the weights.
    assert json.loads(_reproduce(repository, "--json").stdout)["notes"] == []
    (repository / "model.py").write_text("depth = 4\n")
    completed = _reproduce(repository, "--model_dir=runs/b")
    note = "uncommitted changes of the code: model.py\n"
    assert note in completed.stdout
    assert f"note: the steps may differ from those of runs/a:\n  {note}" in completed.stderr
    (attempt,) = attempts_of(repository / "runs/b")
    assert (attempt["code"]["patch"], attempt["train_steps"]) == ("code.patch", 4)
    assert b"+depth = 4\n" in (repository / "runs/b/code.patch").read_bytes()


def _reproduce(cwd: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    completed = warm_runner.run("reproduce", "runs/a", *arguments, cwd=cwd)
    assert completed.returncode == 0, completed.stderr
    return completed


def test_setting_switches_the_patch_off_and_evaluation_keeps_none(repository):
    train(repository, "--trainer.keep_code_patch=false", "--model_dir=runs/c")
    train(repository, "--mode=eval", "--model_dir=runs/c")
    for record in ("run.json", "run.eval.json"):
        (entry,) = json.loads((repository / "runs/c" / record).read_text())["attempts"]
        assert entry["code"]["patch"] is None
        assert {*entry["code"]["changed"]} == {"model.py", "quick.yaml"}
    assert not os.path.lexists(repository / "runs/c/code.patch")
