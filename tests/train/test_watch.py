"""Measurements of gradients, weights and updates, and that they change nothing."""

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.checkpoint.fingerprint import weights_fingerprint
from orbit_runner.config.errors import ConfigError
from orbit_runner.train.watch import MAX_LAYERS, layers_by_variable
from tests.support.digits import cnn_config, digits_config
from tests.support.problems import raises
from tests.support.toy import (
    ToyTask,
    make_strategy,
    records,
    run,
    session_of,
    state_of,
    toy_config,
    toy_task,
)

_WATCH = {"trainer__watch_interval": 10}
_CLIP = {"trainer__optimizer_config__optimizer__sgd__global_clipnorm": 0.1}
_FLOAT16 = {"runtime__mixed_precision_dtype": "float16"}
_EMA = {"trainer__optimizer_config__ema": "{average_decay: 0.9}"}
_PIECES = {"trainer__gradient_accumulation_steps": 2}


def _watched(folder):
    """Returns the measurements of each record, with its step."""
    return [
        {
            name: value
            for name, value in record.items()
            if name == "step" or name.startswith("watch/")
        }
        for record in records(folder, "train")
    ]


def _by_tape(config, steps, clip):
    """Works out the measurements of each step with a gradient tape."""
    model = state_of(config, make_strategy("one_device")).model
    (kernel,) = model.trainable_variables
    features, labels = toy_task(config).arrays()
    batch, measurements = config.task.train_data.global_batch_size, []
    for step in range(steps):
        rows = (step * batch + np.arange(batch)) % len(features)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(features[rows]) - labels[rows]) ** 2)
        gradient, before = tape.gradient(loss, kernel).numpy(), kernel.numpy()
        norm = np.linalg.norm(gradient)
        kernel.assign_sub(0.1 * gradient * (min(1.0, clip / norm) if clip else 1.0))
        moved = np.linalg.norm(kernel.numpy() - before)
        measurements.append(
            {
                "watch/gradient_norm": norm,
                "watch/weight_norm": np.linalg.norm(before),
                "watch/non_finite_gradients": 0.0,
                "watch/update_ratio/w": moved / np.linalg.norm(before),
            }
        )
    return measurements


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "strategy"),
    [
        ({}, "mirrored2"),
        (_CLIP, "one_device"),
        ({**_PIECES, **_FLOAT16}, "mirrored2"),
        ({"runtime__run_eagerly": True}, "one_device"),
    ],
)
def test_measurements_are_those_of_a_gradient_tape(changes, strategy, tmp_path):
    config = toy_config(**_WATCH, **changes)
    run(config, tmp_path, "train", strategy)
    expected = _by_tape(config, 20, 0.1 if changes == _CLIP else None)
    measurements = {record.pop("step"): record for record in _watched(tmp_path)}
    assert {step: set(record) for step, record in measurements.items()} == {
        step: set(expected[0]) if step % 10 == 0 else set() for step in (5, 10, 15, 20)
    }
    for step in (10, 20):
        for name, value in expected[step - 1].items():
            np.testing.assert_allclose(measurements[step][name], value, rtol=1e-3, err_msg=name)


def test_gradients_that_are_not_finite_are_counted(tmp_path):
    config = toy_config(**_WATCH, task__nan_from=9, trainer__recovery_max_trials=-1)
    with raises("diverged"):
        run(config, tmp_path, "train")
    (measured,) = (record for record in _watched(tmp_path) if record["step"] == 10)
    assert measured["watch/non_finite_gradients"] == 1.0
    assert measured["watch/gradient_norm"] is None


_CASES = {
    "pipeline": (cnn_config, {"task__train_data__on_device": False}, "mirrored2"),
    "accumulation": (cnn_config, {**_FLOAT16, **_PIECES, **_EMA}, "mirrored2"),
    "dropout": (digits_config, {"task__model__dropout_rate": 0.5}, "one_device"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", _CASES)
def test_weights_and_other_values_are_the_same_without_measurements_and_a_trace(case, tmp_path):
    make, changes, strategy = _CASES[case]
    same = {"trainer__train_steps": 40, "trainer__summary_interval": 5, **changes}
    runs = []
    for name, measured in (
        ("without", {}),
        ("with", {"trainer__watch_interval": 5, "trainer__profile_steps": "[4, 12]"}),
    ):
        folder = tmp_path / name
        model, _ = run(make(**same, **measured), folder, "train", strategy)
        losses = [(record["step"], record["training_loss"]) for record in records(folder, "train")]
        runs.append((weights_fingerprint(model), losses))
        assert {len(record) > 1 for record in _watched(folder)} == {bool(measured)}
        traces = [*folder.glob("train/plugins/profile/*/*.xplane.pb")]
        assert [trace.stat().st_size > 0 for trace in traces] == [True] * bool(measured)
    assert runs[0] == runs[1]


@pytest.mark.slow
def test_measurements_do_not_depend_on_where_loops_end(tmp_path):
    pieces = []
    for steps_per_loop in (1, 60):
        config = digits_config(
            trainer__steps_per_loop=steps_per_loop,
            trainer__checkpoint_interval=60,
            trainer__watch_interval=30,
        )
        run(config, tmp_path / str(steps_per_loop), "train")
        pieces.append(_watched(tmp_path / str(steps_per_loop)))
    assert pieces[0] == pieces[1]
    assert [len(record) > 1 for record in pieces[1]] == [False, True, False, True]


@pytest.mark.slow
@pytest.mark.parametrize("first", [10, 13])
def test_resumed_run_has_the_measurements_of_an_uninterrupted_run(first, tmp_path):
    config = toy_config(**_WATCH, trainer__train_steps=30)
    run(config, tmp_path / "whole", "train")
    begin = config.replace(trainer=config.trainer.replace(train_steps=first))
    run(begin, tmp_path / "parts", "train")
    run(config, tmp_path / "parts", "train")
    whole, parts = (
        [record for record in _watched(tmp_path / name) if len(record) > 1]
        for name in ("whole", "parts")
    )
    assert [record["step"] for record in whole] == [10, 20, 30]
    assert parts == whole


class _OwnUpdates(ToyTask):
    """Changes the weights without `apply_gradients`."""

    def train_step(self, inputs, model, optimizer, metrics=None):
        (kernel,) = model.trainable_variables
        kernel.assign_sub(tf.ones_like(kernel))
        return {self.loss: tf.constant(0.0)}


def test_task_that_does_not_apply_gradients_is_rejected(tmp_path):
    config, strategy = toy_config(trainer__watch_interval=5), make_strategy("one_device")
    session = session_of(config, tmp_path, strategy, task=_OwnUpdates(config.task))
    session.restore_or_initialize()
    with strategy.scope(), raises("not-supported"):
        session.trainer.train(tf.constant(5))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"trainer.watch_interval": 12}, "multiple of summary_interval (5)"),
        ({"runtime.enable_xla": True}, "allowed: 0 with enable_xla"),
        ({"runtime.distribution_strategy": "tpu"}, "allowed: 0 under `tpu`"),
        ({"runtime.distribution_strategy": "parameter_server"}, "under `parameter_server`"),
    ],
)
def test_settings_that_rule_out_measurements_are_rejected(changes, reason):
    with pytest.raises(ConfigError) as caught:
        toy_config(**{"trainer.watch_interval": 10, **changes})
    (problem,) = (
        problem_ for problem_ in caught.value.problems if problem_.path == "trainer.watch_interval"
    )
    assert reason in problem.message


def test_layers_with_a_common_prefix_count_as_one_if_there_are_many():
    names = [
        f"net/block_{n}/{part}/kernel:0" for n in range(12) for part in ("key", "value", "out")
    ]
    layers = layers_by_variable(names)
    assert list(dict.fromkeys(layers.values())) == [f"net/block_{n}" for n in range(12)]


@pytest.mark.parametrize("prefix", ["", "net/"])
@pytest.mark.parametrize("count", [MAX_LAYERS + 1, 2 * MAX_LAYERS, 200])
def test_consecutive_layers_count_as_one_if_no_prefix_is_shared(prefix, count):
    names = [f"{prefix}conv_{n}/{part}:0" for n in range(count) for part in ("kernel", "bias")]
    layer_of = layers_by_variable(names)
    layers = list(dict.fromkeys(layer_of.values()))
    assert MAX_LAYERS / 2 <= len(layers) <= MAX_LAYERS
    first, _, last = layers[0].partition("..")
    assert first == f"{prefix}conv_0"
    assert layer_of[f"{last}/bias:0"] == layers[0]
    assert list(layer_of) == names
    assert [layer_of[name] for name in names] == sorted(layer_of.values(), key=layers.index)
