"""Runs with images split over devices have the losses of runs with unsplit images."""

import json
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import tf_keras

from orbit_runner import train_lib
from orbit_runner.checkpoint.fingerprint import CheckpointContent
from orbit_runner.train.inputs.partition import Partition
from tests.support.digits import cnn_config
from tests.support.problems import raises
from tests.support.toy import config_of

_RATE = "trainer__optimizer_config__learning_rate__constant__learning_rate"
_SHORT = {
    "trainer__train_steps": 20,
    "trainer__summary_interval": 1,
    "trainer__checkpoint_interval": 20,
    "trainer__validation_interval": 20,
    "task__model__dropout_rate": 0.0,
}
_RESNET = {
    "task.name": "image_classification",
    "task.model.name": "resnet_cifar",
    "task.model.depth": 8,
    "task.train_data.source": "synthetic",
    "task.train_data.synthetic.num_examples": 64,
    "task.train_data.global_batch_size": 16,
    "task.validation_data.source": "synthetic",
    "task.validation_data.synthetic.num_examples": 40,
    "task.validation_data.global_batch_size": 16,
    "trainer.train_steps": 4,
    "trainer.summary_interval": 1,
    "trainer.validation_interval": 4,
    "trainer.checkpoint_interval": 4,
    "trainer.optimizer_config.optimizer.type": "sgd",
    "trainer.optimizer_config.learning_rate.type": "constant",
    "trainer.optimizer_config.learning_rate.constant.learning_rate": 0.01,
}


def _losses(config: Any, folder: Path) -> list[float]:
    strategy, task = train_lib.prepare(config, str(folder))
    train_lib.run_experiment(strategy, task, "train_and_eval", config, str(folder))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line.get("training_loss", line.get("validation_loss")) for line in lines]


def _parts(dims: list[int], strategy: str, devices: int) -> dict[str, Any]:
    # Two strategies that reduce by collectives cannot follow each other in one process.
    reduction = "reduction_to_one_device" if strategy == "mirrored" else None
    return {
        "runtime__all_reduce_alg": reduction,
        "runtime__distribution_strategy": strategy,
        "runtime__num_virtual_devices": devices,
        "runtime__train_input_partition_dims": dims,
        "runtime__eval_input_partition_dims": dims,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dims", "strategy", "devices"),
    [
        ([1, 1, 2, 1], "one_device", 2),
        ([1, 2, 2, 1], "one_device", 4),
        ([1, 2, 1, 1], "mirrored", 4),
        ([2, 1, 2, 1], "mirrored", 4),
    ],
)
def test_losses_match_those_of_unsplit_images(
    dims: list[int], strategy: str, devices: int, tmp_path: Path
) -> None:
    whole = _losses(cnn_config(**_SHORT), tmp_path / "whole")
    parts = _losses(cnn_config(**_SHORT, **_parts(dims, strategy, devices)), tmp_path / "parts")

    assert len(parts) == 21
    assert parts == pytest.approx(whole, rel=0, abs=1e-5)


@pytest.mark.slow
def test_split_residual_network_matches_the_unsplit_one(tmp_path: Path) -> None:
    whole = _losses(config_of(_RESNET, runtime__distribution_strategy="one_device"), tmp_path / "a")
    parts = _losses(config_of(_RESNET, **_parts([1, 2, 2, 1], "one_device", 4)), tmp_path / "b")

    assert parts[:4] == pytest.approx(whole[:4], rel=0, abs=1e-5)
    # Moving averages as young as this give large outputs.
    assert parts[4] == pytest.approx(whole[4], rel=1e-4)
    contents = [CheckpointContent(tmp_path / name / "checkpoints" / "ckpt-4") for name in "ab"]
    assert contents[0].state_keys() == contents[1].state_keys()


@pytest.mark.slow
def test_images_are_split_with_model_gardens_setting_names(tmp_path: Path) -> None:
    dims = {"task__train_input_partition_dims": [1, 1, 2, 1]}
    both = {**dims, "task__eval_input_partition_dims": [1, 1, 2, 1]}
    devices = {"runtime__distribution_strategy": "mirrored", "runtime__num_virtual_devices": 2}
    whole = _losses(cnn_config(**_SHORT), tmp_path / "whole")

    parts = _losses(cnn_config(**_SHORT, **both, **devices), tmp_path / "parts")

    assert parts == pytest.approx(whole, rel=0, abs=1e-5)


def test_network_that_cannot_be_split_is_rejected() -> None:
    inputs = tf_keras.Input([8, 8, 1])
    up = tf_keras.layers.Conv2DTranspose(2, 3, name="up")(inputs)
    config = cnn_config(**_parts([1, 2, 1, 1], "one_device", 2))
    partition = Partition(config, tf.distribute.OneDeviceStrategy("CPU:0"), is_training=True)

    with raises("not-divisible", "runtime.train_input_partition_dims"):
        partition.wrap_model(tf_keras.Model(inputs, up, name="net"))
