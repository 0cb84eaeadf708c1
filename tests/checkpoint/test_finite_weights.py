"""Non-finite weights are never saved in a checkpoint, whatever the loss is."""

import json

import ml_dtypes
import numpy as np
import pytest

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.fingerprint import CheckpointContent, count_non_finite, is_trained
from orbit_runner.errors import Diverged
from tests.support.configs import keep_best
from tests.support.problems import raises
from tests.support.run_directories import saved_steps
from tests.support.toy import Notes, make_strategy, records, run, toy_config, trained

# A NaN feature in front of a ReLU: the loss stays finite, the gradient does not.
HIDDEN = {"task__relu": True, "trainer__steps_per_loop": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nan_from", "keep", "asynchronous", "steps"),
    [(12, 5, False, [5, 10]), (19, 2, True, [10, 15]), (2, 5, True, [])],
)
def test_non_finite_weights_end_the_run_and_are_not_saved(
    nan_from, keep, asynchronous, steps, tmp_path
):
    config = toy_config(task__nan_from=nan_from, trainer__max_to_keep=keep, **HIDDEN)
    saved_at = -(-(nan_from + 1) // 5) * 5
    reason = (
        f"the weights of step {saved_at} are not finite, and no checkpoint was saved "
        "(w/kernel: 3 of 3 values are not finite)"
    )
    with raises("diverged") as caught:
        run(config, tmp_path, enable_async_checkpointing=asynchronous)
    assert caught.value.exit_code == 3
    assert saved_steps(tmp_path) == steps
    for step in steps:
        content = CheckpointContent(tmp_path / "checkpoints" / f"ckpt-{step}")
        assert content.summary().non_finite == ()
    assert not list((tmp_path / "checkpoints").glob(".writing-*"))
    (event,) = records(tmp_path, "event")
    assert event["event"] == "diverged"
    assert (event["step"], event["reason"]) == (saved_at, reason)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("name", "nan_from", "asynchronous"),
    [("one_device", 12, False), ("one_device", 19, True), ("mirrored2", 12, True)],
)
def test_run_recovers_from_the_last_finite_checkpoint(name, nan_from, asynchronous, tmp_path):
    notes = Notes()
    recovery = {"trainer__recovery_max_trials": 1, "trainer__max_to_keep": 1}
    config = toy_config(task__nan_from=nan_from, **recovery, **HIDDEN)
    model, _ = run(
        config, tmp_path, strategy=name, notes=notes, enable_async_checkpointing=asynchronous
    )
    assert np.isfinite(model.get_weights()[0]).all()
    assert saved_steps(tmp_path) == [20]
    (note,) = (note for note in notes.notes if "diverged" in note)
    assert f"returned to step {nan_from // 5 * 5} (recovery 1 of 1)" in note


def test_weights_are_checked_even_if_the_loss_check_is_off(tmp_path):
    config = toy_config(task__nan_from=7, trainer__recovery_max_trials=-1)
    with raises("diverged"):
        run(config, tmp_path)
    assert saved_steps(tmp_path) == [5]


@pytest.mark.sample(1)
@pytest.mark.parametrize("part", ["momentum", "average"])
def test_optimizer_slots_and_averages_must_be_finite(part, tmp_path):
    config = toy_config(
        trainer__optimizer_config__optimizer__sgd__momentum=0.9,
        trainer__optimizer_config__ema__average_decay=0.9,
    )
    session = trained(config, tmp_path, make_strategy("one_device"))
    state = session.state
    weight = state.model.trainable_variables[0]
    slots = {
        "momentum": state.optimizer.get_slot(weight, "momentum"),
        "average": state.ema.averages[0],
    }
    slots[part].assign([[1.0], [np.inf], [np.nan]])
    state.global_step.assign(21)
    with raises("diverged"):
        session.checkpoints.save()
    assert saved_steps(tmp_path) == [5, 10, 15, 20]


@pytest.mark.slow
def test_infinite_constant_of_the_model_is_allowed(tmp_path):
    config = toy_config(task__mask=True)
    notes = Notes()
    for steps in (10, 20):
        until = config.replace(trainer=config.trainer.replace(train_steps=steps))
        run(until, tmp_path, notes=notes)
    assert notes.started_at == [0, 10]
    record = json.loads((tmp_path / "checkpoints" / "ckpt-20.json").read_text())
    assert record["non_finite"] == ["mask"]


@pytest.mark.slow
def test_the_best_checkpoint_stays_finite(tmp_path):
    best = {
        **keep_best("validation_loss", "higher"),  # NaN weights score best.
        "trainer__checkpoint_interval": 20,
    }
    with pytest.raises(Diverged):
        run(toy_config(task__nan_from=12, **best, **HIDDEN), tmp_path)
    (kept,) = CheckpointFolder(tmp_path / "best", name="best").committed_steps()
    assert CheckpointContent(tmp_path / "best" / f"best-{kept}").summary().non_finite == ()
    assert kept <= 10


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (np.array([1.0, np.nan, np.inf, -np.inf], np.float32), 3),
        (np.array([1.0, np.inf], np.float16), 1),
        (np.array([1.0, np.nan], ml_dtypes.bfloat16), 1),
        (np.array([1.0, complex(0, np.inf)], np.complex64), 1),
        (np.array([2**31 - 1], np.int32), 0),
        (np.array([b"nan"], object), 0),
        (np.zeros([0], np.float32), 0),
        (np.float64("nan"), 1),
    ],
)
def test_non_finite_values_are_counted_in_every_dtype(value, count):
    assert count_non_finite(np.asarray(value)) == count


@pytest.mark.parametrize(
    ("key", "trained_one"),
    [
        ("model/layer_with_weights-0/kernel/.ATTRIBUTES/VARIABLE_VALUE", True),
        ("model/w/kernel/.OPTIMIZER_SLOT/optimizer/m/.ATTRIBUTES/VARIABLE_VALUE", True),
        ("optimizer/loss_scale/current_loss_scale/.ATTRIBUTES/VARIABLE_VALUE", False),
    ],
)
def test_only_trained_variables_must_be_finite(key, trained_one):
    assert is_trained(key) is trained_one
