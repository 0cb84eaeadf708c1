"""Runs that freeze layers, and train some at other rates."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from orbit_runner.config.schema.trainer import FineTuning
from tests.support.official_runs import run_official
from tests.support.official_toys import LineTask, line
from tests.support.toy import make_strategy, run, run_and_resume, session_of
from tests.support.tuned import TunedTask, tuned_config

_FROZEN = "{freeze: [first, norm]}"
_RATES = """{freeze: [first, norm],
 learning_rates: [{layers: [block], factor: 0.3}, {layers: [w], factor: 2}]}"""
_ADAM = {"trainer__optimizer_config__optimizer__type": "adam"}
_ADAMW = {
    "trainer__optimizer_config__optimizer__type": "adamw",
    "trainer__optimizer_config__optimizer__adamw__weight_decay_rate": 0.1,
}
_NEW_ADAM = {
    "trainer__optimizer_config__optimizer__type": "adamw_experimental",
    "trainer__optimizer_config__optimizer__adamw_experimental__weight_decay": 0.1,
}
_MOMENTUM = {
    "trainer__optimizer_config__optimizer__sgd__momentum": 0.9,
    "trainer__optimizer_config__optimizer__sgd__global_clipnorm": 0.5,
}
_EMA = {"trainer__optimizer_config__ema": "{average_decay: 0.9}"}
_FLOAT16 = {"runtime__mixed_precision_dtype": "float16"}
_PIECES = {"trainer__gradient_accumulation_steps": 2}
_CASES = {
    "momentum and clipping": (_MOMENTUM, "one_device"),
    "decay, new kind, average": ({**_NEW_ADAM, **_EMA}, "one_device"),
    "mirrored, all": ({**_ADAMW, **_EMA, **_FLOAT16, **_PIECES}, "mirrored2"),
    "XLA": ({**_ADAM, **_PIECES, "runtime__enable_xla": True}, "one_device"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", _CASES)
def test_resumed_run_has_the_weights_of_an_uninterrupted_one(case, tmp_path):
    changes, strategy = _CASES[case]
    config = tuned_config(_RATES, trainer__train_steps=12, task__dropout_rate=0.2, **changes)
    run_and_resume(config, tmp_path, strategy)


def _steps(config, folder, strategy="one_device"):
    """Returns the variables of the model after each step, by name."""
    every = config.trainer.replace(checkpoint_interval=1, max_to_keep=None)
    run(config.replace(trainer=every), folder, "train", strategy)
    weights = []
    for step in range(1, config.trainer.train_steps + 1):
        model = TunedTask(config.task).build_model()
        path = str(folder / f"checkpoints/ckpt-{step}")
        tf.train.Checkpoint(model=model).read(path).expect_partial()
        weights.append({variable.name: variable.numpy() for variable in model.variables})
    return weights


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "strategy"),
    [
        ({**_ADAMW, **_EMA}, "mirrored3"),
        (_NEW_ADAM, "one_device"),
        ({**_MOMENTUM, "runtime__enable_xla": True}, "one_device"),
    ],
)
def test_frozen_layers_and_their_moving_averages_keep_each_bit(changes, strategy, tmp_path):
    run(tuned_config(trainer__train_steps=3), tmp_path / "before", "train")
    settings = {
        "task__init_checkpoint": tmp_path / "before",
        "task__train_data__global_batch_size": 12,
        "trainer__train_steps": 10,
        **changes,
    }
    weights = _steps(tuned_config(_FROZEN, **settings), tmp_path / "run", strategy)

    for name in weights[0]:
        values = [step_weights[name].tobytes() for step_weights in weights]
        changed = [step for step in range(1, 10) if values[step] != values[step - 1]]
        is_frozen = name.partition("/")[0] in ("first", "norm")
        assert changed == ([] if is_frozen else [*range(1, 10)]), name


@pytest.mark.slow
@pytest.mark.parametrize("changes", [_NEW_ADAM, _MOMENTUM, _ADAMW])
def test_weights_are_those_of_a_loop_with_keras(changes, tmp_path):
    config = tuned_config(_FROZEN, trainer__train_steps=12, **changes)
    tuned, _ = run(config, tmp_path / "a", "train")
    task = TunedTask(config.task)
    state = session_of(config, tmp_path / "b", make_strategy("off"), task=task).state
    model, (features, labels) = state.model, task.arrays()
    for step in range(12):
        rows = (step * 8 + np.arange(8)) % len(features)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(features[rows], training=True) - labels[rows]) ** 2)
        trained = model.trainable_variables
        gradients = tape.gradient(loss, trained)
        state.optimizer.apply_gradients(zip(gradients, trained, strict=True))

    for one, other in zip(tuned.variables, model.variables, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5, err_msg=one.name)


def _slots(state, layer):
    inner = state.optimizer
    variables = inner.variables() if callable(inner.variables) else inner.variables
    return [variable for variable in variables if f"/{layer}/" in f"/{variable.name}"]


@pytest.mark.parametrize("changes", [_ADAM, _NEW_ADAM])
def test_frozen_layers_have_no_slots(changes, tmp_path):
    config = tuned_config(_FROZEN, **changes)
    state = session_of(config, tmp_path, make_strategy("off"), task=TunedTask(config.task)).state

    counts = {name: len(_slots(state, name)) for name in ("first", "norm", "inner", "w")}
    assert counts == {"first": 0, "norm": 0, "inner": 4, "w": 4}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "strategy"),
    [
        (_MOMENTUM, "mirrored2"),
        (_FLOAT16, "one_device"),
        ({**_ADAM, **_PIECES, "runtime__enable_xla": True}, "one_device"),
    ],
)
def test_factor_for_all_layers_equals_another_learning_rate(changes, strategy, tmp_path):
    rate = "trainer__optimizer_config__learning_rate__constant__learning_rate"
    entry = "{learning_rates: [{layers: ['*'], factor: 0.25}]}"
    tuned, _ = run(
        tuned_config(entry, **{rate: 0.02}, **changes), tmp_path / "a", "train", strategy
    )
    other, _ = run(tuned_config(**{rate: 0.005}, **changes), tmp_path / "b", "train", strategy)
    far, _ = run(tuned_config(**{rate: 0.02}, **changes), tmp_path / "c", "train", strategy)

    models = (tuned, other, far)
    for one, expected, wrong in zip(*(each.trainable_variables for each in models), strict=True):
        if one.name == "first/bias:0":  # Batch normalization cancels it.
            continue
        np.testing.assert_allclose(one, expected, rtol=2e-3, atol=2e-4, err_msg=one.name)
        assert not np.allclose(one, wrong, rtol=2e-3, atol=2e-4)


def test_rate_of_one_layer_does_not_change_the_first_update_of_others(tmp_path):
    entry = "{learning_rates: [{layers: [first], factor: 0.5}]}"
    one_step = {"trainer__train_steps": 1, **_ADAM}
    task = TunedTask(tuned_config().task)
    before = session_of(
        tuned_config(**one_step), tmp_path / "c", make_strategy("off"), task=task
    ).state.model
    plain, _ = run(tuned_config(**one_step), tmp_path / "a", "train")
    rated, _ = run(tuned_config(entry, **one_step), tmp_path / "b", "train")
    for start, one, other in zip(before.variables, plain.variables, rated.variables, strict=True):
        if one.name.startswith("first"):
            np.testing.assert_allclose(other - start, 0.5 * (one - start), rtol=1e-3, atol=1e-6)
        else:
            assert one.numpy().tobytes() == other.numpy().tobytes()


class _TwoLayers(LineTask):
    """A task of Model Garden with two layers."""

    def build_model(self):
        layers = [tf_keras.layers.Dense(2, name="hidden"), tf_keras.layers.Dense(1, name="line")]
        return tf_keras.Sequential([tf_keras.Input([1]), *layers])


@pytest.mark.slow
def test_task_of_model_garden_is_fine_tuned(tmp_path):
    models = [
        run_official(
            line(), tmp_path / str(steps), "train", task_class=_TwoLayers,
            fine_tuning=FineTuning(freeze=("hidden",)), train_steps=steps,
        )[0].get_weights()
        for steps in (1, 4)
    ]  # fmt: skip

    (hidden, _, line_kernel, _), (same, _, changed, _) = models
    assert hidden.tobytes() == same.tobytes()
    assert line_kernel.tobytes() != changed.tobytes()


def test_frozen_weights_have_no_average(tmp_path):
    config = tuned_config(_FROZEN, **_EMA)
    state = session_of(config, tmp_path, make_strategy("off"), task=TunedTask(config.task)).state

    averaged = {weight.name.partition("/")[0] for weight, _ in state.ema.pairs()}
    assert averaged == {"inner", "w"}
