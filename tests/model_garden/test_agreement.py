"""Fifty steps of a Model Garden experiment, in its own runner and in this one."""

import contextlib
import io
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
import yaml
from official.core import exp_factory, task_factory
from official.core import train_lib as theirs

from orbit_runner import train_lib
from orbit_runner.config.resolve import Request, resolve

STEPS, SEED, BATCH = 50, 17, 4

SETTINGS = {
    "task": {
        "model": {
            "num_classes": 4,
            "input_size": [16, 16, 3],
            "backbone": {"type": "resnet", "resnet": {"model_id": 10, "depth_multiplier": 0.125}},
        },
        "losses": {"l2_weight_decay": 1e-3, "label_smoothing": 0.1},
    },
    "trainer": {
        "train_steps": STEPS,
        "steps_per_loop": 1,
        "summary_interval": 1,
        "checkpoint_interval": STEPS,
        "validation_steps": 2,
        "validation_interval": STEPS,
        "optimizer_config": {
            "optimizer": {"type": "sgd", "sgd": {"momentum": 0.9}},
            "learning_rate": {
                "type": "cosine",
                "cosine": {"initial_learning_rate": 0.05, "decay_steps": STEPS},
            },
            "warmup": {"type": "linear", "linear": {"warmup_steps": 5}},
        },
    },
    "runtime": {"distribution_strategy": "one_device"},
}


@pytest.fixture
def config_file(tmp_path):
    """Returns a config whose pipelines shuffle, crop and flip JPEGs in TFRecords."""
    records = tmp_path / "images.tfrecord"
    write_images(records, 24)
    data = {"input_path": str(records), "global_batch_size": BATCH, "seed": SEED}
    sections = {
        "train_data": {**data, "is_training": True, "shuffle_buffer_size": 16},
        "validation_data": {**data, "is_training": False},
    }
    path = tmp_path / "experiment.yaml"
    settings = {**SETTINGS, "task": {**SETTINGS["task"], **sections}}
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path


def write_images(path, count):
    """Writes images of noise, brighter from class to class."""
    random = np.random.default_rng(0)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(count):
            pixels = random.normal(80 + 30 * (number % 4), 30, (20, 20, 3)).clip(0, 255)
            encoded = tf.io.encode_jpeg(pixels.astype(np.uint8)).numpy()
            features = {
                "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded])),
                "image/class/label": tf.train.Feature(
                    int64_list=tf.train.Int64List(value=[number % 4])
                ),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


def in_model_garden(experiment, config_file, folder):
    """Returns the output of each step in Model Garden's own runner, and the model."""
    params = exp_factory.get_exp_config(experiment)
    params.override(yaml.safe_load(config_file.read_text(encoding="utf-8")), is_strict=True)
    tf_keras.backend.clear_session()
    tf_keras.utils.set_random_seed(SEED)
    strategy, outputs = tf.distribute.OneDeviceStrategy("CPU:0"), list[Any]()
    with strategy.scope():
        task = task_factory.get_task(params.task, logging_dir=str(folder))
    with contextlib.redirect_stdout(io.StringIO()):
        model, _ = theirs.run_experiment(
            strategy, task, "train", params, str(folder), train_actions=[outputs.append]
        )
    return outputs, model


def in_this_runner(experiment, config_file, folder):
    """Returns the output of each step in this runner, and the model."""
    request = Request(
        experiment=f"official/{experiment}",
        config_files=(str(config_file),),
        params_overrides=(f"runtime.seed={SEED}",),
    )
    config, outputs = resolve(request).config, list[Any]()
    strategy, task = train_lib.prepare(config, str(folder), mode="train")
    model, _ = train_lib.run_experiment(
        strategy, task, "train", config, str(folder), train_actions=[outputs.append]
    )
    return outputs, model


@pytest.mark.promise(
    "weights", "Model Garden's tasks have the losses that Model Garden's runner gives"
)
@pytest.mark.slow
def test_fifty_steps_give_the_same_losses_as_model_gardens_runner(config_file, tmp_path):
    # Its preset enables XLA, which Model Garden's runner ignores on a CPU.
    experiment = "resnet_imagenet"
    ours, model = in_this_runner(experiment, config_file, tmp_path / "ours")
    theirs, their_model = in_model_garden(experiment, config_file, tmp_path / "theirs")

    def steps(outputs, name):
        return np.array([float(output[name]) for output in outputs])

    losses = steps(ours, "training_loss")
    assert len(set(losses.tolist())) == len(losses) == STEPS
    np.testing.assert_allclose(losses, steps(theirs, "training_loss"), rtol=0, atol=1e-6)
    for name in ("learning_rate", "accuracy"):
        np.testing.assert_array_equal(steps(ours, name), steps(theirs, name))
    for own, other in zip(model.get_weights(), their_model.get_weights(), strict=True):
        np.testing.assert_allclose(own, other, rtol=0, atol=1e-6)
