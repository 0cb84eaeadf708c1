"""Trains on the digits as a Model Garden user would: with a custom task and Model Garden's runner.

`benchmarks/start.py` measures it. It uses nothing of this project, and imports what
`official.vision.train` imports.
"""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf
import tf_keras
from official.common import distribute_utils
from official.core import base_task, config_definitions, task_factory, train_lib
from official.modeling import optimization
from official.vision import registry_imports  # noqa: F401
from sklearn.datasets import load_digits


class DigitsTask(base_task.Task):
    """Has the network and the data of `experiments/digits.yaml`."""

    def build_model(self) -> tf_keras.Model:
        layers = tf_keras.layers
        return tf_keras.Sequential(
            [
                tf_keras.Input([8, 8, 1]),
                layers.Rescaling(1 / 16),
                layers.Conv2D(32, 3, padding="same", activation="relu"),
                layers.MaxPool2D(),
                layers.Conv2D(64, 3, padding="same", activation="relu"),
                layers.MaxPool2D(),
                layers.Flatten(),
                layers.Dense(128, activation="relu"),
                layers.Dropout(0.4),
                layers.Dense(10),
            ]
        )

    def build_inputs(self, params: Any, input_context: Any = None) -> tf.data.Dataset:
        digits = load_digits()
        images = digits.images[..., None].astype("uint8")
        data = tf.data.Dataset.from_tensor_slices((images, digits.target.astype("int32")))
        data = data.shuffle(1797).repeat().map(_crop_randomly, num_parallel_calls=tf.data.AUTOTUNE)
        return data.batch(64, drop_remainder=True).prefetch(tf.data.AUTOTUNE)

    def build_losses(self, labels: Any, model_outputs: Any, aux_losses: Any = None) -> tf.Tensor:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model_outputs)
        return tf.reduce_mean(losses)

    def build_metrics(self, training: bool = True) -> list[Any]:
        return [tf_keras.metrics.SparseCategoricalAccuracy(name="accuracy")]


def _crop_randomly(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    padded = tf.image.resize_with_crop_or_pad(image, 10, 10)
    return tf.image.random_crop(padded, [8, 8, 1]), label


def main(model_dir: str) -> None:
    """Trains in loops of one step."""
    params = config_definitions.ExperimentConfig(
        task=config_definitions.TaskConfig(train_data=config_definitions.DataConfig()),
        trainer=config_definitions.TrainerConfig(
            optimizer_config=optimization.OptimizationConfig(
                {"optimizer": {"type": "adam"}, "learning_rate": {"type": "constant"}}
            ),
            train_steps=100,
            steps_per_loop=1,
            summary_interval=1,
            checkpoint_interval=100,
        ),
    )
    task_factory.register_task_cls(config_definitions.TaskConfig)(DigitsTask)
    strategy = distribute_utils.get_distribution_strategy("one_device", num_gpus=0)
    with strategy.scope():
        task = task_factory.get_task(params.task, logging_dir=model_dir)
    train_lib.run_experiment(strategy, task, "train", params, model_dir)


if __name__ == "__main__":
    main(sys.argv[1])
