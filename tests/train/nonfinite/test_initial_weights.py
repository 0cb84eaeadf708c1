"""Initial weights that are not finite end a run before its first step, with the right advice."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.errors import Diverged
from orbit_runner.registry import TASKS
from tests.support.problems import raises
from tests.support.toy import ToyConfig, ToyTask, run, toy_config


class BadWeights(ToyTask):
    """The toy with a weight that is NaN."""

    def build_model(self) -> tf_keras.Model:
        model = super().build_model()
        model.trainable_variables[0].assign([[0.0], [float("nan")], [0.0]])
        return model


if "bad_weights" not in TASKS:
    TASKS.register("bad_weights", config=ToyConfig, target=BadWeights, help="")


@pytest.mark.parametrize("trials", [0, 2])
def test_weights_that_are_nan_are_reported_before_the_first_step(
    tmp_path: Path, trials: int
) -> None:
    config = toy_config(task__name="bad_weights", trainer__recovery_max_trials=trials)
    with pytest.raises(Diverged) as caught:
        run(config, tmp_path)

    said = str(caught.value)
    assert "the initial weights are not finite, so no step was trained" in said
    assert "w/kernel: 1 of 3 values are not finite" in said
    assert "check the initializer of this layer" in said
    assert "learning rate" not in said
    assert CheckpointFolder(tmp_path / "checkpoints").steps() == []


@pytest.mark.slow
def test_weights_of_an_initial_checkpoint_are_checked(tmp_path: Path) -> None:
    run(toy_config(trainer__train_steps=1), tmp_path / "a")
    prefix = str(CheckpointFolder(tmp_path / "a" / "checkpoints").prefix(1))
    bad = tmp_path / "bad"
    model = ToyTask(ToyConfig()).build_model()
    model.trainable_variables[0].assign(tf.fill([3, 1], float("inf")))
    tf.train.Checkpoint(model=model).write(str(bad))

    with raises("diverged"):
        run(toy_config(task__init_checkpoint=str(bad)), tmp_path / "b")
    run(toy_config(task__init_checkpoint=prefix, trainer__train_steps=1), tmp_path / "c")


def test_a_constant_of_minus_infinity_is_no_mistake(tmp_path: Path) -> None:
    run(toy_config(task__mask=True, trainer__train_steps=1), tmp_path)


def test_advice_does_not_name_a_setting_that_is_set(tmp_path: Path) -> None:
    with pytest.raises(Diverged) as caught:
        run(toy_config(trainer__loss_upper_bound=1e-9, trainer__recovery_max_trials=2), tmp_path)

    said = str(caught.value)
    assert "as often as trainer.recovery_max_trials allows, 2" in said
    assert "or set trainer.recovery_max_trials" not in said
