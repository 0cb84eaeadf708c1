"""Resuming runs of Model Garden's runner in this runner, and the reverse."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.config.schema.experiment import ExperimentConfig
from tests.support.garden import GardenRun, tensors
from tests.support.problems import raises
from tests.support.toy import (
    Notes,
    ToyTask,
    make_strategy,
    run,
    session_of,
    state_of,
    toy_config,
)

_OPTIMIZER = "trainer__optimizer_config__"
_ADAM = {f"{_OPTIMIZER}optimizer__type": "adam"}
_AVERAGE = {f"{_OPTIMIZER}ema__average_decay": 0.9}
_CASES: dict[str, dict[str, Any]] = {
    "adam": {**_ADAM, **_AVERAGE, f"{_OPTIMIZER}ema__trainable_weights_only": False,
             "task__batch_norm": True},
    "newer adam": {f"{_OPTIMIZER}optimizer__type": "adam_experimental"},
    "float16": {f"{_OPTIMIZER}optimizer__sgd__momentum": 0.9,
                "runtime__mixed_precision_dtype": "float16"},
}  # fmt: skip


def _up_to(config: ExperimentConfig, steps: int) -> ExperimentConfig:
    return config.replace(trainer=config.trainer.replace(train_steps=steps))


def _equal(left: Path, right: Path) -> None:
    one, other = tensors(left), tensors(right)
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-6, atol=1e-6, err_msg=name)


def _restored(config: ExperimentConfig, folder: Path, **options: Any) -> tuple[Any, list[str]]:
    notes = Notes()
    session = session_of(config, folder, make_strategy("one_device"), notes=notes, **options)
    with notes.listening_scope():
        session.restore_or_initialize()
    return session, notes.notes


@pytest.mark.slow
@pytest.mark.parametrize("case", _CASES)
def test_model_garden_checkpoint_resumes_in_this_runner(case: str, tmp_path: Path) -> None:
    config = toy_config(**_CASES[case])
    GardenRun(config, tmp_path / "there", steps=10)
    shutil.copytree(tmp_path / "there", tmp_path / "here")
    GardenRun(config, tmp_path / "there", steps=20)

    session, notes = _restored(config, tmp_path / "here")
    assert session.step == 10
    assert "ckpt-10 is a Model Garden checkpoint; variables restored: global_step, " in notes[0]
    session.state.checkpoint().write(str(tmp_path / "copy"))
    there, here = tensors(tmp_path / "here" / "ckpt-10"), tensors(tmp_path / "copy")
    assert {name: value.tobytes() for name, value in there.items()} == {
        name: value.tobytes() for name, value in here.items()
    }

    run(config, tmp_path / "here", "train")
    _equal(tmp_path / "here" / "checkpoints" / "ckpt-20", tmp_path / "there" / "ckpt-20")


@pytest.mark.slow
@pytest.mark.parametrize("case", _CASES)
def test_our_checkpoint_resumes_in_model_garden_and_back_here(case: str, tmp_path: Path) -> None:
    config = toy_config(**_CASES[case])
    run(_up_to(config, 10), tmp_path / "here", "train")
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    run(_up_to(config, 30), tmp_path / "here", "train")

    found = GardenRun(config, tmp_path / "there", steps=20)
    assert found.started_at == 10
    _equal(tmp_path / "there" / "ckpt-20", tmp_path / "here" / "checkpoints" / "ckpt-20")

    notes = Notes()
    run(_up_to(config, 30), tmp_path / "there", "train", notes=notes)
    assert notes.started_at == [20]
    last = Path("checkpoints") / "ckpt-30"
    _equal(tmp_path / "there" / last, tmp_path / "here" / last)
    assert tf.train.latest_checkpoint(str(tmp_path / "there")) == str(tmp_path / "there" / last)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a Model Garden run: Adam, a weight average, five steps."""
    folder = tmp_path_factory.mktemp("theirs")
    GardenRun(toy_config(**_ADAM, **_AVERAGE), folder, steps=5)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["eval", "train_and_eval"])
def test_damaged_model_garden_checkpoint_is_ignored_and_left_in_place(
    mode: str, theirs: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(theirs, folder)
    shutil.copy(folder / "ckpt-5.index", folder / "ckpt-7.index")
    notes = Notes()
    run(_up_to(toy_config(**_ADAM, **_AVERAGE), 5), folder, mode, notes=notes)
    assert "checkpoint of step 7 is damaged: ckpt-7.data is missing" in notes.notes[0]
    assert f"ignored: {folder / 'ckpt-7'}" in notes.notes[0]
    assert (folder / "ckpt-7.index").exists()
    assert any("finished: step 5 of 5" in note for note in notes.notes) or mode == "eval"


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        *(
            (
                {**_AVERAGE, f"{_OPTIMIZER}optimizer__type": kind},
                "trainer.optimizer_config.optimizer",
            )
            for kind in ("lamb", "adam_experimental")
        ),
        (_ADAM, ""),  # The weight average in the checkpoint is not used.
    ],
)
def test_resuming_a_model_garden_run_with_another_optimizer_or_no_average_is_rejected(
    changes: dict[str, Any], path: str, theirs: Path
) -> None:
    with raises("checkpoint-mismatch", path):
        _restored(toy_config(**changes), theirs)


def test_weight_average_missing_from_the_checkpoint_is_reported(tmp_path: Path) -> None:
    GardenRun(toy_config(), tmp_path, steps=5)
    with raises("checkpoint-mismatch"):
        _restored(toy_config(**_AVERAGE), tmp_path)


def test_checkpoint_without_matching_model_variables_is_rejected(tmp_path: Path) -> None:
    state = state_of(toy_config(), make_strategy("one_device"))
    other = tf.train.Checkpoint(net=state.model, global_step=tf.Variable(3, dtype=tf.int64))
    other.write(str(tmp_path / "ckpt-3"))
    with raises("checkpoint-mismatch"):
        _restored(toy_config(), tmp_path)


class _Idle(tf_keras.layers.Layer):
    """Has a weight that receives no gradient."""

    def build(self, input_shape: Any) -> None:
        self.idle = self.add_weight(name="idle", shape=[2])

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs


class _Net(tf_keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.idle, self.w = _Idle(name="idle"), tf_keras.layers.Dense(1, use_bias=False, name="w")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.w(self.idle(inputs))


class _LateTask(ToyTask):
    """Builds a layer in the first step, after the averages of the others were created."""

    def build_model(self) -> tf_keras.Model:
        model = _Net()
        model.w.build([None, 3])
        return model


class _IdleTask(ToyTask):
    def build_model(self) -> tf_keras.Model:
        model = _Net()
        model(tf.zeros([1, 3]))
        return model


@pytest.mark.slow
def test_slots_and_averages_missing_from_the_checkpoint_start_fresh(tmp_path: Path) -> None:
    config = toy_config(**_ADAM, **_AVERAGE)
    GardenRun(config, tmp_path, steps=5, task=_LateTask(config.task))
    session, notes = _restored(config, tmp_path, task=_IdleTask(config.task))
    for part in ("ema.average", "optimizer.m"):
        assert f"\n  {part} of model.idle.idle" in notes[0]
    assert session.state.ema is not None
    (idle, average), (kernel, moved) = session.state.ema.pairs()
    np.testing.assert_array_equal(idle, average)
    assert np.all(kernel.numpy() != moved.numpy())
    optimizer = session.state.optimizer
    np.testing.assert_array_equal(optimizer.get_slot(idle, "m"), [0.0, 0.0])
    assert np.all(optimizer.get_slot(kernel, "m").numpy() != 0)
    assert session.step == int(optimizer.iterations) == 5
