"""The weights and the state do not depend on the number of devices."""

import json

import pytest
import tensorflow as tf
import tf_keras

from tests.support.digits import cnn_config, digits_config, resnet_config
from tests.support.official_photos import SmallPhotoTask, photos
from tests.support.official_runs import run_official
from tests.support.official_toys import LineTask, line, lines
from tests.support.problems import raises
from tests.support.ratings import ratings_config
from tests.support.toy import (
    Notes,
    ToyTask,
    make_strategy,
    records,
    repeatable_records,
    run,
    session_of,
    toy_config,
)
from tests.support.translations import translation_config, write_set

_EMA = "trainer__optimizer_config__ema__average_decay"
_CLIP = "trainer__optimizer_config__optimizer__adam__global_clipnorm"
_LEGACY_CLIP = {
    "trainer__optimizer_config__optimizer__type": "adamw",
    "trainer__optimizer_config__optimizer__adamw__gradient_clip_norm": 0.05,
    "trainer__optimizer_config__optimizer__adamw__weight_decay_rate": 0.01,
}
_SHORT = {
    "trainer__train_steps": 4,
    "trainer__checkpoint_interval": 4,
    "trainer__validation_interval": 4,
    "trainer__summary_interval": 2,
    "runtime__logical_replicas": 4,
}


def _resnet(**changes):
    return resnet_config(
        task__model__dropout_rate=0.2, task__train_data__augment="crop_flip", **changes
    )


def _digits(**changes):
    return digits_config(task__model__dropout_rate=0.4, **changes)


CASES = {
    "batch norm": lambda _: _resnet(**_SHORT),
    "recommendation": lambda _: ratings_config(**_SHORT),
    "translation": lambda folder: translation_config(write_set(folder / "text"), **_SHORT),
    "bfloat16, augmented": lambda _: cnn_config(
        runtime__mixed_precision_dtype="bfloat16", **_SHORT
    ),
    "float16": lambda _: _digits(runtime__mixed_precision_dtype="float16", **_SHORT),
    "accumulated, average, clipped": lambda _: _digits(
        **{_EMA: 0.9, _CLIP: 0.05}, trainer__gradient_accumulation_steps=2, **_SHORT
    ),
    "clipped by the optimizer": lambda _: _digits(**_LEGACY_CLIP, **_SHORT),
    "max pooling under XLA": lambda _: cnn_config(
        task__model__dropout_rate=0.4, runtime__enable_xla=True, **_SHORT
    ),
    "six": lambda _: digits_config(
        **{
            **_SHORT,
            "runtime__logical_replicas": 6,
            "task__train_data__global_batch_size": 48,
            "task__validation_data__global_batch_size": 96,
        }
    ),
}


def _content(folder):
    lines = (folder / "checkpoints" / "fingerprints.jsonl").read_text().splitlines()
    return dict(json.loads(lines[-1]))


def _logs(folder):
    return repeatable_records(folder, "train", "validation")


@pytest.mark.slow
@pytest.mark.alternating
@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("name", CASES)
def test_weights_state_and_metrics_are_equal_on_any_number_of_devices(name, devices, tmp_path):
    config = CASES[name](tmp_path)
    # Six logical replicas are not a multiple of four devices.
    several = "mirrored3" if name == "six" and devices == 4 else f"mirrored{devices}"
    for strategy in ("one_device", several):
        run(config, tmp_path / strategy, "train_and_eval", strategy)

    content = _content(tmp_path / "one_device")
    logs = _logs(tmp_path / "one_device")
    assert content["step"] == 4
    assert _content(tmp_path / several) == content
    assert _logs(tmp_path / several) == logs


class _MeanTask(LineTask):
    """Adds a metric that is NaN on a batch without rows, with a random draw for each shard."""

    def build_metrics(self, training=True):
        return [*super().build_metrics(training), tf_keras.metrics.Mean(name="mean_error")]

    def process_metrics(self, metrics, labels, outputs):
        super().process_metrics(metrics[:1], labels, outputs)
        draw = tf.random.uniform([])
        metrics[1].update_state(tf.reduce_mean(tf.abs(labels - outputs)) + draw)


def _official(name, folder):
    if name == "photos":
        return photos(folder), SmallPhotoTask
    params = line()
    # The last batch has 5 rows: two shards, a part of one, and none.
    params.task.override({"size": 21, "gathers": name == "gathered"})
    params.trainer.validation_interval = 3
    return params, _MeanTask


@pytest.mark.slow
@pytest.mark.parametrize("name", ["line", "gathered", "photos"])
def test_model_garden_experiment_is_equal_on_any_number_of_devices(name, tmp_path):
    for strategy in ("one_device", "mirrored2"):
        params, task = _official(name, tmp_path)
        folder = tmp_path / strategy
        run_official(params, folder, "train_and_eval", strategy, task, logical_replicas=4)

    one_device, two = (
        (_content(tmp_path / s), _logs(tmp_path / s)) for s in ("one_device", "mirrored2")
    )
    assert one_device[0]["step"] > 1
    assert len([record for record in one_device[1] if record["split"] == "validation"]) >= 1
    assert two == one_device


@pytest.mark.slow
@pytest.mark.parametrize("steps", [-1, 2])
def test_evaluation_takes_the_examples_of_the_same_batches(steps, tmp_path):
    params, task = _official("gathered", tmp_path)
    params.trainer.validation_steps = steps
    run_official(params, tmp_path, "train_and_eval", "mirrored2", task, logical_replicas=4)

    record = records(tmp_path, "validation")[-1]
    count = 21 if steps < 0 else 16
    assert record["validation_examples"] == count
    assert record["label_sum"] == pytest.approx(2.0 * sum(range(count)) / 8.0)


@pytest.mark.slow
def test_run_continues_on_another_number_of_devices(tmp_path):
    changes = {**_SHORT, "trainer__checkpoint_interval": 1}
    config, results = _resnet(**changes), Notes()
    run(config, tmp_path / "whole", strategy="mirrored2")
    for step, strategy in enumerate(("mirrored4", "one_device", "mirrored2", "mirrored4"), 1):
        part = _resnet(**{**changes, "trainer__train_steps": step})
        run(part, tmp_path / "parts", strategy=strategy, notes=results)

    assert _content(tmp_path / "parts") == _content(tmp_path / "whole")
    assert results.reasons == []


def test_logical_replicas_have_different_masks_and_their_number_matters(tmp_path):
    fingerprints = set()
    for count in (2, 4):
        config = _digits(**{**_SHORT, "runtime__logical_replicas": count})
        run(config, tmp_path / str(count), "train")
        fingerprints.add(_content(tmp_path / str(count))["weights"])

    assert len(fingerprints) == 2


@pytest.mark.slow
def test_metrics_are_those_of_the_whole_batch(tmp_path):
    run(toy_config(runtime__logical_replicas=4), tmp_path / "logical", strategy="mirrored2")
    run(toy_config(), tmp_path / "plain")

    logs = (_logs(tmp_path / name) for name in ("logical", "plain"))
    for one, other in zip(*logs, strict=True):
        assert one.pop("split") == other.pop("split")
        assert one == pytest.approx(other, rel=1e-4, abs=1e-5)


class _SynchronizedToy(ToyTask):
    def build_model(self):
        inputs = tf_keras.Input([3])
        x = tf_keras.layers.BatchNormalization(synchronized=True, name="norm")(inputs)
        return tf_keras.Model(inputs, tf_keras.layers.Dense(1)(x))


@pytest.mark.parametrize(
    ("strategy", "task", "code"),
    [("mirrored3", ToyTask, "not-divisible"), ("off", _SynchronizedToy, "not-supported")],
)
def test_indivisible_replicas_and_synchronized_batch_norm_are_rejected(
    strategy, task, code, tmp_path
):
    config = toy_config(runtime__logical_replicas=4)

    with raises(code, "runtime.logical_replicas"):
        session_of(config, tmp_path, make_strategy(strategy), task=task(config.task))


def test_tasks_that_are_trained_together_are_rejected(tmp_path):
    with raises("not-supported", "runtime.logical_replicas"):
        run_official(lines(), tmp_path, "train", logical_replicas=4)
