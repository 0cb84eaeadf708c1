"""One label an image: cross entropy on the logits of any network in the registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras

from orbit_runner.config.data import DataConfig
from orbit_runner.errors import SettingError
from orbit_runner.registry import IMAGE_MODELS
from orbit_runner.tasks.base import Task
from orbit_runner.tasks.image_classification.config import ImageClassificationConfig
from orbit_runner.tasks.image_classification.inputs import (
    eval_inputs,
    train_batch_at,
    train_inputs,
)
from orbit_runner.tasks.image_classification.sources import (
    Source,
    image_spec,
    known_classes,
    load_source,
)
from orbit_runner.tasks.metrics import SparseAccuracy


class ImageClassificationTask(Task):
    """One label an image."""

    task_config: ImageClassificationConfig

    def build_model(self) -> tf_keras.Model:
        """Builds the network that `model.name` names, for the images of the data set.

        Returns:
            A model from uint8 images [batch, height, width, channels] to float32 logits
            [batch, classes].
        """
        config, source = self.task_config, self._main_source()
        options = config.model.as_dict() | {"num_classes": self._num_classes()}
        shape, dtype = image_spec(source)
        model = IMAGE_MODELS.get(options.pop("name")).load()(
            input_shape=shape,
            input_dtype=dtype,
            mean=source.mean,
            std=source.std,
            **options,
        )
        if config.losses.l2_weight_decay:
            _add_weight_decay(model, config.losses.l2_weight_decay)
        return model

    def build_inputs(
        self,
        params: DataConfig,
        input_context: tf.distribute.InputContext | None = None,
        start_step: int | tf.Tensor = 0,
    ) -> tf.data.Dataset:
        """Builds the input pipeline of one section.

        Args:
            params: The section.
            input_context: Which slice of each global batch this pipeline makes.
            start_step: The first training step to make a batch for.

        Returns:
            A data set of `(image, label)` that never ends, for training; of
            `(image, label, weight)`, each example once, for evaluation.
        """
        if not params.is_training:
            return eval_inputs(params, input_context, self._num_classes())
        return train_inputs(params, input_context, start_step, self._num_classes())

    def batch_at(self, params: DataConfig) -> Callable[[tf.Tensor], Any] | None:
        """Returns what gives the batch of one training step; None where data can but be streamed.

        Asynchronous workers ask for it, since each of them is given steps here and there.

        Args:
            params: The section.

        Returns:
            A function from the number of a step, int64 scalar, to what `build_inputs` gives for it.
        """
        return train_batch_at(params)

    def num_examples(self, params: DataConfig) -> int:
        """Returns the size of a section's data set, in examples."""
        return load_source(params).size

    def example_losses(self, labels: tf.Tensor, model_outputs: tf.Tensor) -> tf.Tensor:
        """Returns the cross entropy of each image.

        Args:
            labels: int32 [batch].
            model_outputs: Logits, float32 [batch, classes].

        Returns:
            float32 [batch], in nats.
        """
        losses = self.task_config.losses
        if losses.label_smoothing:
            smooth = tf.one_hot(labels, model_outputs.shape[-1])
            entropy = tf_keras.losses.categorical_crossentropy(
                smooth, model_outputs, from_logits=True, label_smoothing=losses.label_smoothing
            )
        else:
            entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model_outputs)
        return entropy if losses.loss_weight == 1.0 else entropy * losses.loss_weight

    def build_metrics(self, training: bool = True) -> list[tf_keras.metrics.Metric]:
        """Returns the accuracy, and in evaluation the top-k accuracy where classes are many.

        Args:
            training: Whether they are for training.
        """
        metrics: list[tf_keras.metrics.Metric] = [SparseAccuracy("accuracy")]
        k = self.task_config.top_k
        if not training and self._num_classes() > k:
            metrics.append(
                tf_keras.metrics.SparseTopKCategoricalAccuracy(k=k, name=f"top_{k}_accuracy")
            )
        return metrics

    def _num_classes(self) -> int:
        classes = self.task_config.model.num_classes or known_classes(self._main_source())
        if classes is None:
            raise SettingError("task.model.num_classes", "is not set")
        return classes

    def _main_source(self) -> Source:
        return load_source(self.task_config.train_data)


def _add_weight_decay(model: tf_keras.Model, rate: float) -> None:
    kernels = [variable for variable in model.trainable_variables if variable.shape.rank > 1]

    def decay() -> Any:
        return rate * tf.add_n([tf.nn.l2_loss(kernel) for kernel in kernels])

    model.add_loss(decay)
