"""The average of the weights: its values, where it is used, and that it can be reverted."""

import json

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.utils.variables import replica_parts
from tests.support.configs import keep_best
from tests.support.toy import descent, make_strategy, run, state_of, toy_config, toy_task, trained

STEPS = 20


def _config(**changes):
    return toy_config(**{"trainer__optimizer_config__ema__average_decay": 0.9, **changes})


def _by_hand(config):
    ema = config.trainer.optimizer_config.ema
    kernels = [kernel for kernel, _, _ in descent(config, STEPS)]
    average = kernels[0]
    for step in range(1, STEPS + 1):
        since = step - ema.start_step
        decay = ema.average_decay
        if ema.dynamic_decay:
            decay = min(decay, (1 + since) / (10 + since))
        decay = decay if since >= 0 else 0.0
        average = decay * average + (1 - decay) * kernels[step]
    return average


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("name", "dynamic", "start_step"),
    [("one_device", True, 7), ("off", False, 0), ("mirrored2", False, 7)],
)
def test_average_of_the_weights_matches_the_formula(name, dynamic, start_step, tmp_path):
    config = _config(
        trainer__optimizer_config__ema__dynamic_decay=dynamic,
        trainer__optimizer_config__ema__start_step=start_step,
        trainer__validation_interval=STEPS,
        trainer__checkpoint_interval=STEPS,
    )
    session = trained(config, tmp_path, make_strategy(name))
    (average,) = session.state.ema.averages
    np.testing.assert_allclose(average.numpy(), _by_hand(config), rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(
        session.state.model.get_weights()[0], descent(config, STEPS)[-1][0], rtol=2e-5, atol=1e-6
    )


def test_evaluation_and_the_best_checkpoint_use_the_average(tmp_path):
    config = _config(
        **keep_best("validation_loss"),
        trainer__validation_interval=STEPS,
    )
    _, logs = run(config, tmp_path, strategy="mirrored2")
    average = _by_hand(config)
    features, labels = toy_task(config).arrays()
    expected = np.mean((features @ average - labels) ** 2)
    np.testing.assert_allclose(logs["validation_loss"], expected, rtol=1e-4)
    best = tf.train.latest_checkpoint(str(tmp_path / "best"))
    model = toy_task(config).build_model()
    tf.train.Checkpoint(model=model).read(best).expect_partial()
    (stored,) = model.get_weights()
    np.testing.assert_allclose(stored, average, rtol=1e-4)
    info = json.loads((tmp_path / "best" / "info.json").read_text())
    assert info["best_ckpt_global_step"] == STEPS
    np.testing.assert_allclose(info["validation_loss"], expected, rtol=1e-4)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["off", "mirrored2"])
def test_applying_and_reverting_the_average_restores_the_weights_exactly(name, tmp_path):
    config = _config(
        task__batch_norm=True, trainer__optimizer_config__ema__trainable_weights_only=False
    )
    state = trained(config, tmp_path, make_strategy(name)).state

    def bits():
        return [p.numpy().tobytes() for v in state.model.variables for p in replica_parts(v)]

    before = bits()
    with state.ema.applied_scope():
        for weight, average in zip(state.model.variables, state.ema.averages, strict=True):
            np.testing.assert_array_equal(weight.numpy(), average.numpy())
        assert bits() != before
    assert bits() == before
    with pytest.raises(KeyError), state.ema.applied_scope():
        raise KeyError
    assert bits() == before


def test_batch_norm_moving_averages_are_averaged_if_configured(tmp_path):
    config = _config(
        task__batch_norm=True,
        trainer__optimizer_config__ema__average_decay=0.0,
        trainer__optimizer_config__ema__trainable_weights_only=False,
    )
    state = trained(config, tmp_path, make_strategy("mirrored2")).state
    names = [variable.name for variable in state.model.variables]
    assert any("moving_mean" in name for name in names)
    for weight, average in zip(state.model.variables, state.ema.averages, strict=True):
        np.testing.assert_allclose(average.numpy(), weight.numpy(), rtol=1e-6)
        assert np.any(average.numpy() != 0)


def test_batch_norm_moving_averages_are_not_averaged_by_default():
    state = state_of(_config(task__batch_norm=True), make_strategy("one_device"))
    assert (
        len(state.ema.averages) == len(state.model.trainable_variables) < len(state.model.variables)
    )


def test_average_of_the_weights_matches_the_formula_in_float16(tmp_path):
    config = _config(runtime__mixed_precision_dtype="float16", trainer__train_steps=STEPS)
    state = trained(config, tmp_path, make_strategy("one_device")).state
    np.testing.assert_allclose(state.ema.averages[0].numpy(), _by_hand(config), rtol=2e-2)
