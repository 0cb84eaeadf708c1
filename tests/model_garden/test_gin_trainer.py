"""`runner run` with a trainer selected by a gin binding: what it writes, displays and restores."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gin
import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.cli.main import main
from tests.support.registered_examples import MarkedTrainer
from tests.support.run_directories import last_attempt

FLAGS = (
    "--experiment=official/orbit_runner_test_random",
    "--import=tests.support.registered_examples",
    "--gin_params=create_trainer.trainer_cls = @orbit_runner_test.MarkedTrainer",
    "--trainer.train_steps=20",
    "--trainer.steps_per_loop=10",
    "--trainer.summary_interval=10",
    "--trainer.checkpoint_interval=10",
    "--trainer.validation_interval=10",
    "--trainer.validation_steps=2",
    "--trainer.optimizer_config.optimizer.type=sgd",
    "--trainer.optimizer_config.learning_rate.type=constant",
)


@pytest.fixture(autouse=True)
def _without_bindings() -> Iterator[None]:
    gin.clear_config()
    yield
    gin.clear_config()


def run(model_dir: Path, *flags: str) -> int:
    gin.clear_config()
    return main([*FLAGS, f"--model_dir={model_dir}", *flags])


def records(model_dir: Path) -> list[tuple[str, int]]:
    lines = (model_dir / "metrics.jsonl").read_text().splitlines()
    return [(record["split"], record["step"]) for record in map(json.loads, lines)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model_dir = tmp_path_factory.mktemp("gin") / "run"
    assert run(model_dir) == 0
    return model_dir


@pytest.mark.slow
def test_run_with_a_gin_trainer_is_recorded_and_displayed(
    trained: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "again") == 0
    shown = capfd.readouterr().err
    assert "training from step 0 to 20" in shown
    assert "evaluation at step 10" in shown
    assert "mine 7.000" in shown
    found = last_attempt(trained)
    assert (found["outcome"], found["step"]) == ("done", 20)
    assert "a custom trainer" in found["inexact"][0]
    assert {"loss", "validation_loss"} <= found["metrics"].keys()
    # The seed reaches its random ops, which fail without one if ops are deterministic.
    assert last_attempt(tmp_path / "again")["weights"] == found["weights"]
    assert "official: orbit_runner_test_random" in (trained / "config.yaml").read_text()
    assert records(trained) == [(s, step) for step in (10, 20) for s in ("train", "validation")]
    assert gc.isenabled()


@pytest.mark.slow
def test_run_with_a_gin_trainer_resumes(
    trained: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained, tmp_path / "run")
    other = "--trainer.optimizer_config.optimizer.type=adam"
    assert run(tmp_path / "run", other) == 2
    assert "optimizer.type" in capfd.readouterr().err
    assert run(tmp_path / "run", "--trainer.train_steps=30", "--mode=train") == 0
    assert "restored step 20 from" in capfd.readouterr().err
    assert last_attempt(tmp_path / "run")["step"] == 30
    assert records(tmp_path / "run")[-1] == ("train", 30)


def test_invalid_records_are_set_aside_on_resume(
    trained: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained, tmp_path / "run")
    metrics = tmp_path / "run/metrics.jsonl"
    metrics.write_bytes(b"garbage\n" + metrics.read_bytes())
    assert run(tmp_path / "run", "--trainer.train_steps=30", "--mode=train") == 0
    assert "invalid lines in" in capfd.readouterr().err
    assert (tmp_path / "run/metrics.jsonl.damaged").read_bytes().startswith(b"garbage\n")
    assert records(tmp_path / "run")[-1] == ("train", 30)


def test_mismatched_checkpoint_is_rejected(
    trained: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run/config.yaml").unlink()
    path = str(tmp_path / "run/ckpt-20")
    # Imitates the checkpoint of a model without a bias.
    kernel = tf.Variable(tf.zeros([2, 1]))
    layer = tf.train.Checkpoint(kernel=kernel)
    network = {"layer_with_weights-0": layer}
    model = tf.train.Checkpoint(network=tf.train.Checkpoint(**network))
    step = tf.Variable(20, dtype=tf.int64, name="global_step")
    tf.train.Checkpoint(model=model, global_step=step).write(path)
    longer = ("--trainer.train_steps=30", "--resume=override", "--mode=train")
    assert run(tmp_path / "run", *longer) == 2
    shown = capfd.readouterr().err
    assert "does not fit this experiment" in shown
    assert "bias" in shown


def at_first_loop_end(monkeypatch: pytest.MonkeyPatch, action: Callable[[Any], None]) -> None:
    """Calls a function with the trainer when its first loop of steps ends."""
    end = MarkedTrainer.train_loop_end

    def train_loop_end(trainer: Any) -> dict[str, object]:
        if int(trainer.global_step.numpy()) == 10:
            action(trainer)
        return end(trainer)

    monkeypatch.setattr(MarkedTrainer, "train_loop_end", train_loop_end)


@pytest.mark.slow
def test_sigterm_saves_a_checkpoint_and_the_run_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    at_first_loop_end(monkeypatch, lambda trainer: os.kill(os.getpid(), signal.SIGTERM))
    never = "--trainer.checkpoint_interval=1000"
    assert run(tmp_path / "run", never) == 143
    assert "SIGTERM: saved at step 10, exiting" in capfd.readouterr().err
    monkeypatch.undo()
    assert run(tmp_path / "run", never) == 0
    assert "restored step 10" in capfd.readouterr().err
    assert last_attempt(tmp_path / "run")["step"] == 20


def test_non_finite_weights_are_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def spoil(trainer: Any) -> None:
        weight = trainer.model.trainable_variables[0]
        weight.assign(weight * np.nan)

    at_first_loop_end(monkeypatch, spoil)
    assert run(tmp_path / "run") == 3
    assert "the weights of step 10 are not finite, and no checkpoint" in capfd.readouterr().err
    assert not (tmp_path / "run/ckpt-10.index").exists()
