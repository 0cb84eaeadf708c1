"""`runner run` in the directory of a run that is live, finished, or has a different config."""

import sys
from types import SimpleNamespace
from typing import NoReturn

import pytest

from orbit_runner.cli.commands import run
from orbit_runner.cli.main import main
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.serialize import to_yaml
from orbit_runner.jobs.train_job import ConfigWriter, Job
from tests.support.problems import error_of, fails
from tests.support.run_directories import locked_by_another


@pytest.fixture
def folder(here):
    """The working directory, whose subdirectory `a` looks like a run of `digits_mlp`."""
    checkpoints = here / "a" / "checkpoints"
    checkpoints.mkdir(parents=True)
    for name in ("checkpoint", "ckpt-100.index"):
        (checkpoints / name).touch()
    config = resolve(Request(experiment="digits_mlp")).config
    (here / "a" / "config.yaml").write_text(to_yaml(config))
    return here


@pytest.fixture
def starts(no_tensorflow, monkeypatch, capsys):
    """Runs a command that must get as far as the job, and returns its messages."""

    class Started(BaseException):
        """The job has started."""

    def start(*arguments: object) -> NoReturn:
        raise Started

    def run_command(*arguments: str) -> str:
        with pytest.raises(Started):
            main(arguments)
        return capsys.readouterr().err

    monkeypatch.setattr(run, "run_job", start)
    return run_command


@pytest.mark.parametrize(
    "changes",
    [
        ["--train_steps=5000"],
        ["--train_epochs=50", "--trainer.best_checkpoint_metric_comp=lower"],
        ["--trainer.validation_interval=7", "--runtime.inter_op_threads=3"],
    ],
)
def test_resume_accepts_changes_that_cannot_affect_the_weights(changes, folder, starts):
    before = (folder / "a" / "config.yaml").read_bytes()
    starts("--experiment=digits_mlp", "--model_dir=a", *changes)
    assert (folder / "a" / "config.yaml").read_bytes() == before


@pytest.mark.parametrize(
    "changes",
    [
        ["--seed=18", "--train_steps=5000"],
        ["--trainer.recovery_max_trials=1", "--trainer.checkpoint_interval=7"],
    ],
)
def test_resume_rejects_and_lists_changes_that_can_affect_the_weights(changes, folder, starts):
    arguments = ["--experiment=digits_mlp", "--model_dir=a", *changes]
    error = fails(arguments, "other-config")
    assert "train_steps" not in str(error)
    starts(*arguments, "--resume=override")


@pytest.mark.slow
def test_resume_compares_with_checkpoint_config_if_config_file_is_missing(finished_run, run):
    (run / "config.yaml").unlink()
    config = f"--experiment={finished_run / 'config.yaml'}"
    fails([config, f"--model_dir={run}", "--train_steps=40", "--seed=18"], "other-config")


@pytest.mark.usefixtures("no_tensorflow")
def test_resume_rejects_change_that_mattered_under_the_earlier_config(folder):
    request = Request(experiment="digits_mlp", params_overrides=("trainer.recovery_max_trials=1",))
    (folder / "a" / "config.yaml").write_text(to_yaml(resolve(request).config))
    fails(
        ["--experiment=digits_mlp", "--model_dir=a", "--trainer.summary_interval=7"], "other-config"
    )


@pytest.mark.slow
def test_only_training_modes_take_the_run_lock(folder, starts):
    arguments = ["--experiment=digits_mlp", "--model_dir=a"]
    with locked_by_another(folder / "a"):
        for mode in ("train", "train_and_eval", "train_and_post_eval"):
            # The config differs too, but the live process is reported first.
            fails([*arguments, f"--mode={mode}", "--seed=18"], "run-locked", "--model_dir")
        for mode in ("eval", "continuous_eval"):
            starts(*arguments, f"--mode={mode}")
    starts(*arguments, "--mode=train")


def test_rejected_command_creates_no_run_directory(here):
    for mode in ("trian", "eval"):
        error_of(["--experiment=digits_mlp", "--model_dir=a", f"--mode={mode}"])
    assert [*here.iterdir()] == []


@pytest.mark.slow
def test_incompatible_config_does_not_overwrite_the_saved_config(run):
    before = (run / "config.yaml").read_bytes()
    arguments = [f"--experiment={run}", f"--model_dir={run}", "--train_steps=40"]
    arguments += ["--task.model.hidden_units=[128, 7]", "--resume=override"]
    fails(arguments, "checkpoint-mismatch")
    assert (run / "config.yaml").read_bytes() == before


@pytest.mark.parametrize("step", [0, 7])
def test_config_is_written_once_at_run_begin(step, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["x", "--experiment=digits", "--seed=a\nb: ["])
    resolved = resolve(Request(experiment="digits_mlp"))
    job = Job(resolved=resolved, config=resolved.config, mode="train", model_dir=tmp_path)
    writer, file = ConfigWriter(job), tmp_path / "config.yaml"
    of_run = SimpleNamespace(step=step, written_config=resolved.config)
    assert not file.exists()
    writer.on_run_begin(of_run)
    assert file.read_text().startswith("# Made by: runner --experiment=digits '--seed=a\\nb: ['\n")
    assert resolve(Request(experiment=str(tmp_path))).config.replace(name="") == (
        resolved.config.replace(name="")
    )
    file.unlink()
    writer.on_train_begin(of_run)
    writer.on_run_begin(of_run)
    assert not file.exists()
