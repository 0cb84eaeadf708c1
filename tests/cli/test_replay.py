"""`runner replay`: a run made by a separate process is replayed in this one."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import yaml

from orbit_runner.cli.main import main
from tests.support import warm_runner
from tests.support.problems import fails, output_of

DIVERGING = [
    "--experiment=digits_mlp",
    "--task.model.hidden_units=[8]",
    "--task.model.dropout_rate=0.3",
    "--train_steps=30",
    "--trainer.checkpoint_interval=10",
    "--trainer.summary_interval=5",
    # TensorFlow fixes the thread settings of the test process at its first op.
    "--runtime.intra_op_threads=0",
    "--mode=train",
    "--model_dir=a",
]
Replay = Callable[..., tuple[int, str, str]]


@pytest.fixture
def replay(tmp_path, monkeypatch, capsys):
    """Runs the command, and returns its exit code, stdout and stderr."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main(["replay", *map(str, arguments), "--progress=plain"])
        captured = capsys.readouterr()
        assert [*temporary.glob("replay-*")] == []
        return code, captured.out, captured.err

    return run


@pytest.mark.promise("commands", "`runner replay` repeats a step exactly")
@pytest.mark.slow
def test_replayed_step_is_the_run_s_own(finished_run, replay):
    before = {path: path.stat().st_mtime_ns for path in finished_run.rglob("*")}
    code, out, err = replay(finished_run, "--step=23")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == f"step 23 of {finished_run}, replayed from the checkpoint of step 20"
    assert (
        lines[1] == "  the run's own step: the weights of step 30 have the fingerprint of the run"
    )
    assert "examples, worst first (computed in the step)" in lines
    assert "… and 48 more; --all shows all of them" in out
    assert "training from step 20 to 30" in err
    assert "examining step 23" in err
    assert {path: path.stat().st_mtime_ns for path in finished_run.rglob("*")} == before


@pytest.mark.slow
def test_step_before_all_checkpoints_is_replayed_from_the_beginning(finished_run, replay):
    rows = json.loads(output_of(["batch", str(finished_run), "--step=3", "--json"]))["rows"]
    code, out, _ = replay(finished_run, "--step=3", "--json")
    output = json.loads(out)
    assert (code, output["start"], output["step"]) == (0, None, 3)
    assert output["own"]["verdict"] == "own"
    assert len(output["examples"]) == output["rows"] == 64
    assert output["finite"]
    examples = {example["row"]: example["example"] for example in output["examples"]}
    assert examples == {example["row"]: example["example"] for example in rows}


@pytest.mark.slow
def test_changed_config_is_reported_as_a_difference(run, replay):
    text = (run / "config.yaml").read_text()
    assert "dropout_rate: 0.3" in text
    (run / "config.yaml").write_text(text.replace("dropout_rate: 0.3", "dropout_rate: 0.4"))
    code, out, err = replay(run, "--step=22")
    assert code == 4
    assert "differs from the run: the weights of step 30" in out
    assert "made with a different config" in err


@pytest.mark.parametrize(
    ("arguments", "code", "path"),
    [
        (["--step=0"], "wrong-usage", ""),
        (["--step=3", "--find"], "wrong-usage", ""),
        (["--step=31"], "unknown-step", "--step"),
        (["--find"], "unknown-step", "--find"),
        (["--step=3", "--trainer.train_steps=3"], "unknown-flag", "--trainer.train_steps"),
    ],
)
def test_mistakes_are_reported(arguments, code, path, finished_run):
    fails(["replay", str(finished_run), *arguments], code, path)


def test_run_on_tpus_is_rejected(run):
    text = (run / "config.yaml").read_text()
    changed = text.replace("distribution_strategy: one_device", "distribution_strategy: tpu")
    assert changed != text
    (run / "config.yaml").write_text(changed)
    fails(["replay", str(run), "--step=1"], "not-repeatable", "RUN")


@pytest.mark.slow
def test_losses_above_their_bound_before_the_step_do_not_end_a_replay(run, replay):
    """The run reached the step; loops of a replay end elsewhere, and have other losses."""
    path = run / "config.yaml"
    config = yaml.safe_load(path.read_text())
    config["trainer"]["loss_upper_bound"] = 1e-9
    path.write_text(yaml.safe_dump(config))

    code, out, _ = replay(run, "--step=17")

    assert code == 4  # After the step, the changed bound counts.
    assert "examples, worst first" in out


@pytest.mark.slow
def test_step_at_which_a_run_diverged_is_found_also_if_it_cannot_be_examined(tmp_path, replay):
    run = tmp_path / "a"
    flags = ["--trainer.loss_upper_bound=1", "--runtime.logical_replicas=2"]
    completed = warm_runner.run(*DIVERGING, *flags, cwd=tmp_path)
    assert completed.returncode == 3, completed.stderr
    assert "`runner replay a --find` finds the step" in completed.stderr
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}

    code, out, _ = replay(run, "--find")
    first, second, *_ = out.splitlines()
    assert code == 0
    assert first.endswith(f" of {run}, the first that diverges, found from the beginning")
    assert second.startswith("  the loss is ")
    assert "its layers cannot be examined: runtime.logical_replicas is set" in out
    assert len(out.partition("examples of the step: ")[2].split(", ")) == 64
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
