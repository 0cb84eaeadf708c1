"""`runner branch` rejects what cannot be continued, and survives kills while it prepares."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from orbit_runner.cli.main import main
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.repeat.branch import find_branch_step
from orbit_runner.repeat.plan import read_repetition
from orbit_runner.step.examples import TrainingOrder
from tests.support import warm_runner
from tests.support.problems import error_of, fails, problems_of, raises
from tests.support.run_directories import locked_by_another


@pytest.fixture
def parent(run, here):
    """The run `a` in the working directory, to be changed."""
    return run


@pytest.fixture(scope="module")
def runs(finished_run, tmp_path_factory):
    """The directory of a run, of a branch of it, and of directories that are no run."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "full").mkdir()
    (folder / "full/x").touch()
    for name in ("a", "damaged"):
        shutil.copytree(finished_run, folder / name)
    for path in (folder / "damaged/checkpoints").glob("*.index"):
        path.unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["branch", "a", "--at=20", "--model_dir=branch", "--prepare", "--quiet"]) == 0
    return folder


@pytest.mark.parametrize(
    ("arguments", "code", "path"),
    [
        (["a", "--at=31", "--model_dir=b"], "unknown-step", "--at"),
        (["a", "--at=0", "--model_dir=b"], "wrong-usage", ""),
        (["a", "--at=x", "--model_dir=b"], "wrong-usage", ""),
        (["a", "--model_dir=b"], "not-set", "--at"),
        (["a", "--at=20"], "wrong-usage", ""),
        (["nowhere", "--at=20", "--model_dir=b"], "not-a-run", "RUN"),
        (["a", "--at=20", "--model_dir=a/b"], "bad-path", "--model_dir"),
        (["a", "--at=20", "--model_dir=full"], "already-exists", "--model_dir"),
        (["damaged", "--at=20", "--model_dir=b"], "no-checkpoint", "RUN"),
        (["gs://x/a", "--at=20", "--model_dir=b"], "bad-path", "RUN"),
        (["a", "--at=20", "--model_dir=gs://x/b"], "bad-path", "--model_dir"),
        (["a", "--at=20", "--model_dir=b", "--experiment=digits"], "conflict", "--experiment"),
        (["a", "--at=20", "--model_dir=b", "--mode=eval"], "not-allowed", "--mode"),
        (["a", "--at=20", "--model_dir=b", "--train_steps=15"],
         "out-of-range", "trainer.train_steps"),
        (["a", "--at=20", "--model_dir=b", "--trainer.optimizer_config.optimizer.type=sgd"],
         "checkpoint-mismatch", "trainer.optimizer_config.optimizer.type"),
        (["branch", "--at=15", "--model_dir=b"],
         "unknown-step", "--at"),
        (["a", "--at=25", "--model_dir=branch"], "other-config", "--model_dir"),
        (["a", "--at=20", "--model_dir=b", "--distribution_strategy=multi_worker_mirrored",
          "--runtime.worker_hosts=one:1,two:2", "--runtime.task_index=0"], "not-set", "--prepare"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
@pytest.mark.usefixtures("no_tensorflow")
def test_invalid_branch_is_rejected_before_anything_is_written(
    arguments, code, path, runs, monkeypatch
):
    monkeypatch.chdir(runs)
    before = {*runs.rglob("*")}

    fails(["branch", *arguments], code, path)

    assert {*runs.rglob("*")} == before


@pytest.mark.slow
def test_settings_that_do_not_fit_the_checkpoint_are_an_error(parent):
    flags = ["--at=20", "--model_dir=b", "--task.model.hidden_units=[9]", "--quiet"]
    fails(["branch", "a", *flags], "checkpoint-mismatch")


def test_changed_data_is_rejected(parent):
    text = (parent / "data.json").read_text()
    (parent / "data.json").write_text(text.replace("sha256:", "sha256:0"))
    flags = ["--at=20", "--model_dir=b", "--prepare"]
    fails(["branch", "a", *flags], "data-changed")
    # A branch may have other data, if its settings say so.
    assert main(["branch", "a", *flags, "--task.train_data.global_batch_size=32"]) == 0
    assert json.loads(Path("b/data.json").read_text())["changes"] == []


@pytest.mark.slow
def test_steps_that_differ_from_those_of_the_parent_are_reported(parent, tmp_path):
    """The run has another rate than `config.yaml` says, and saved a checkpoint of step 10."""
    text = (parent / "config.yaml").read_text()
    (parent / "config.yaml").write_text(
        text.replace("learning_rate: 0.001", "learning_rate: 0.002")
    )
    arguments = ["branch", "a", "--at=15", "--model_dir=b", "--prepare"]
    (problem,) = problems_of(error_of(arguments, exit_code=4))
    # The text depends on whether the code is committed.
    assert (problem.code, problem.path) == ("not-repeatable", "RUN")
    assert "differ at step 10" in problem.message
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.slow
def test_damaged_checkpoint_is_not_used(parent, capsys):
    path = parent / "checkpoints/ckpt-20.data-00000-of-00001"
    path.write_bytes(path.read_bytes()[:-1])
    assert main(["branch", "a", "--at=25", "--model_dir=b", "--prepare"]) == 0
    assert "repeating a from the beginning to step 25" in capsys.readouterr().err
    fingerprints = (Path("b") / "checkpoints/fingerprints.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in fingerprints] == [10, 20, 25]


@pytest.mark.slow
def test_kill_while_the_directory_is_made_leaves_no_half_made_run(parent, tmp_path):
    command = ["branch", "a", "--at=25", "--model_dir=b", "--prepare"]
    first = warm_runner.start(*command, stderr=subprocess.DEVNULL)
    copied = tmp_path / ".b.branch/checkpoints/ckpt-20.index"
    end = time.monotonic() + 60
    while not copied.exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    first.kill()
    assert first.wait() < 0
    assert not (tmp_path / "b").exists()
    second = warm_runner.run(*command)
    assert second.returncode == 0, second.stderr
    assert "b was interrupted during its creation; creating it again" in second.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.slow
def test_other_process_that_makes_the_same_branch_is_detected(parent, tmp_path):
    with locked_by_another(tmp_path / ".b.branch"):
        fails(["branch", "a", "--at=20", "--model_dir=b", "--prepare"], "run-locked", "--model_dir")
    assert not (tmp_path / "b").exists()


def test_branch_of_excluded_examples_begins_before_the_first_of_them(parent):
    steps = read_repetition(parent)
    order = TrainingOrder(steps.config.config, parent)

    def first_of(step: int) -> int:
        """Returns an example of a step that no earlier step has."""
        ids = (row["example"] for row in order.step(step).chosen)
        return next(example for example in ids if order.occurrences(example, 30)[0]["step"] == step)

    def branch_step(*examples: int) -> tuple[int, int | None]:
        flags = (("", "task.train_data.exclude", str([*examples])),)
        changed = resolve(Request(experiment="a/config.yaml", flags=flags))
        return find_branch_step(steps, changed)

    assert branch_step(first_of(22)) == (20, 22)
    with raises("not-set", "--at"):
        branch_step()
    # The checkpoint of step 20 is too late for an example of that step.
    for step in (3, 20):
        with raises("no-checkpoint", "--at"):
            branch_step(first_of(22), first_of(step))


def test_records_and_events_of_later_steps_stay_with_the_parent(parent):
    """An event of a later step, such as a recovery, has not happened to the branch."""
    with (parent / "metrics.jsonl").open("a") as file:
        for step in (20, 30):
            event = {"step": step, "split": "event", "event": "recovered", "recoveries": 1}
            file.write(f"{json.dumps(event)}\n")
    assert main(["branch", "a", "--at=20", "--model_dir=b", "--prepare", "--quiet"]) == 0
    lines = [json.loads(text) for text in Path("b/metrics.jsonl").read_text().splitlines()]
    assert max(record["step"] for record in lines) <= 20
    assert [record["step"] for record in lines if "event" in record] == [20]
