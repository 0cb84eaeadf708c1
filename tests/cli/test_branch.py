"""`runner branch`: the weights of branches, and what they keep of the run that they continue."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orbit_runner.cli.main import main
from orbit_runner.run_directory.branch import read_branch
from orbit_runner.run_directory.metric_records import MetricLog
from orbit_runner.run_directory.run_reader import RunReader, read_history
from tests.support.problems import output_of
from tests.support.run_directories import last_attempt

STEPS = 60
RATE = "trainer.optimizer_config.learning_rate"
PARENT = [
    "--experiment=digits_mlp",
    "--task.model.hidden_units=[8]",
    f"--train_steps={STEPS}",
    "--trainer.checkpoint_interval=20",
    "--trainer.summary_interval=5",
    "--trainer.validation_interval=15",
    "--trainer.best_checkpoint_export_subdir=best",
    "--trainer.best_checkpoint_eval_metric=accuracy",
    "--trainer.best_checkpoints_to_keep=4",
]
# Steps without a checkpoint, before the first one too. At 30, the run evaluates.
NO_CHECKPOINTS = [1, 30, 59]
Branched = Callable[..., Path]


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    path = tmp_path_factory.mktemp("parent") / "a"
    assert main(["run", *PARENT, f"--model_dir={path}", "--quiet"]) == 0
    return path


@pytest.fixture
def branched(parent, tmp_path):
    """Makes a branch and trains it, both in this process. Returns its run directory."""

    def make(*arguments: str, run: Path = parent, name: str = "b") -> Path:
        path = tmp_path / name
        flags = [f"--model_dir={path}", "--quiet"]
        assert main(["branch", str(run), *arguments, *flags, "--prepare"]) == 0
        assert main(["run", f"--experiment={path}", *flags]) == 0
        return path

    return make


def _weights(run: Path) -> str:
    return str(last_attempt(run)["weights"])


@pytest.mark.promise("commands", "`runner branch` continues from any step")
@pytest.mark.slow
@pytest.mark.parametrize("step", NO_CHECKPOINTS)
def test_branch_without_a_change_has_the_weights_of_its_parent(step, parent, branched):
    before = {path: path.stat().st_mtime_ns for path in parent.rglob("*")}
    branch = branched(f"--at={step}")
    assert not (parent / f"checkpoints/ckpt-{step}.index").exists()
    assert _weights(branch) == _weights(parent)
    assert last_attempt(branch)["inexact"] == []
    mine, theirs = (read_history(run).fingerprints for run in (branch, parent))
    assert {saved: prints for saved, prints in mine.items() if saved != step} == theirs
    assert {path: path.stat().st_mtime_ns for path in parent.rglob("*")} == before


@pytest.mark.usefixtures("no_tensorflow")
def test_branch_at_a_checkpoint_imports_no_tensorflow_to_prepare(finished_run, here, capsys):
    flags = ["--at=20", "--model_dir=b", "--prepare", "--json"]
    assert main(["branch", str(finished_run), *flags]) == 0
    printed = capsys.readouterr()
    output = json.loads(printed.out)
    assert (output["run"], output["step"], output["changes"]) == ("b", 20, [])
    assert output["weights"] == read_history(finished_run).fingerprints[20].weights
    assert "steps 1 to 20 are those of" in printed.err
    assert [path.name for path in here.iterdir()] == ["b"]


@pytest.mark.slow
def test_best_checkpoints_up_to_the_step_are_copied(parent, tmp_path):
    branch = tmp_path / "b"
    arguments = ["--at=40", f"--model_dir={branch}", "--prepare", "--quiet"]
    assert main(["branch", str(parent), *arguments]) == 0

    copied = {path.name: path.read_bytes() for path in (branch / "best").glob("best-*")}

    assert {name for name in copied if name.endswith(".index")} == {
        "best-15.index",
        "best-30.index",
    }
    assert all(copied[name] == (parent / "best" / name).read_bytes() for name in copied)


@pytest.mark.slow
def test_other_rate_equals_a_run_whose_schedule_has_a_step_there(branched, tmp_path):
    branch = branched("--at=33", f"--{RATE}.constant.learning_rate=0.02")
    # Step 33 is the last one with the first rate; the schedule counts from 0.
    schedule = f"--{RATE}={{type: stepwise, stepwise: {{boundaries: [32], values: [0.001, 0.02]}}}}"
    unbroken = tmp_path / "unbroken"
    assert main(["run", *PARENT, schedule, f"--model_dir={unbroken}", "--quiet"]) == 0
    assert _weights(branch) == _weights(unbroken)
    rates = [record["learning_rate"] for record in MetricLog(branch / "metrics.jsonl").records()
             if record["split"] == "train"]  # fmt: skip
    assert (rates[0], rates[-1]) == (0.001, 0.02)
    # A constant rate is a variable in the checkpoint, and a schedule is none.
    stepwise = branched("--at=33", schedule, name="stepwise")
    assert _weights(stepwise) == _weights(unbroken)
    back = branched("--at=50", f"--{RATE}.type=constant", f"--{RATE}.constant.learning_rate=0.02",
                    run=stepwise, name="back")  # fmt: skip
    assert _weights(back) == _weights(unbroken)


@pytest.mark.slow
def test_branch_keeps_the_history_up_to_its_step(parent, branched):
    branch = branched("--at=45", "--runtime.seed=3", "--train_steps=50")
    keys = ("step", "split", "training_loss", "accuracy")
    mine, theirs = ([tuple(item.get(key) for key in keys) for item in
                     MetricLog(run / "metrics.jsonl").records() if item["step"] <= 45]
                    for run in (branch, parent))  # fmt: skip
    assert mine == theirs
    assert RunReader(branch).changes == {"runtime.seed": 3, "trainer.train_steps": 50}
    record = read_branch(branch)
    assert (record.parent.resolve(), record.step) == (parent.resolve(), 45)
    assert {item.path: (item.left, item.right) for item in record.changes} == {
        "runtime.seed": ("17", "3"),
        "trainer.train_steps": ("60", "50"),
    }
    assert record.weights == read_history(branch).fingerprints[45].weights
    info = json.loads((branch / "best/info.json").read_text())
    assert (branch / f"best/best-{info['best_ckpt_global_step']}.index").exists()


@pytest.mark.slow
def test_branch_of_a_branch_is_verified_and_reproduced(branched):
    child = branched("--at=33", "--runtime.seed=3", name="child")
    grandchild = branched("--at=47", "--runtime.seed=4", run=child, name="grandchild")
    assert "47" in output_of(["verify", str(grandchild), "--quiet"])
    output = json.loads(output_of(["reproduce", str(grandchild), "--quiet", "--json"]))
    assert (output["start"], output["notes"]) == (47, [])
    assert output["parting"]["left"]["weights"] == _weights(grandchild)


@pytest.mark.slow
def test_command_trains_and_continues_a_branch(cli, parent, tmp_path):
    arguments = ["branch", str(parent), "--at=33", "--model_dir=b", "--json"]
    first, second = cli(*arguments), cli(*arguments)
    for completed in (first, second):
        assert completed.returncode == 0, completed.stderr
        assert json.loads(completed.stdout)["fingerprint"] == _weights(parent)
    assert f"b exists: a branch of {os.path.relpath(parent, tmp_path)} at step 33" in second.stderr
    assert "the run is finished" in second.stderr
    assert not [*tmp_path.glob(".*")]
