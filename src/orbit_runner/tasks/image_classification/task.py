"""Image classification: the cross entropy of the logits of any registered network."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf
import tf_keras

from orbit_runner.data.chunks import Chunks
from orbit_runner.data.images.dataset import ImageDataset
from orbit_runner.data.images.decode import decode_for_evaluation
from orbit_runner.models.catalog import BACKBONE
from orbit_runner.models.configs import ApplicationConfig
from orbit_runner.models.layers import ImageInput
from orbit_runner.registry import IMAGE_MODELS
from orbit_runner.tasks.base import Task, section_of, split_labels
from orbit_runner.tasks.class_metrics import make_metric, standard_metrics
from orbit_runner.tasks.image_classification.config import ImageClassificationConfig
from orbit_runner.tasks.image_classification.data_config import ImageDataConfig, make_preprocessing
from orbit_runner.tasks.image_classification.inputs import ImageInputs
from orbit_runner.tasks.image_classification.serving import (
    ImagePredictor,
    image_serving,
)
from orbit_runner.tasks.image_classification.sources import (
    TrainedImages,
    load_source,
    section_source,
)
from orbit_runner.tasks.initial_weights import LoadedWeights, load_application_weights
from orbit_runner.tasks.report_examples import ReportExamples, classification_examples
from orbit_runner.tasks.serving import Serving

if TYPE_CHECKING:
    from orbit_runner.tasks.metrics import TaskMetric
    from orbit_runner.utils.types import Tensors


class ImageClassificationTask(Task):
    """Image classification with one label per image."""

    task_config: ImageClassificationConfig
    counts_examples = True

    def build_model(self) -> tf_keras.Model:
        """Builds the network `model.name` for the images of the dataset.

        It maps images [batch, height, width, channels], usually uint8, to float32 logits
        [batch, classes].
        """
        config = self.task_config
        images = self.images
        pixels = config.model.pixels() or images
        model = IMAGE_MODELS.get(config.model.name).load()(
            config.model,
            ImageInput(images.shape, images.num_classes, pixels.mean, pixels.std, images.dtype),
        )
        if config.losses.l2_weight_decay:
            _add_weight_decay(model, config.losses.l2_weight_decay)
        return model

    def load_pretrained(self, model: tf_keras.Model) -> LoadedWeights | None:
        """Loads the published weights of an application, without those of its classifier."""
        config = self.task_config.model
        if not isinstance(config, ApplicationConfig) or config.weights is None:
            return None
        return load_application_weights(model.get_layer(BACKBONE), config.application)

    def build_inputs(
        self,
        params: ImageDataConfig,
        input_context: tf.distribute.InputContext | None = None,
        start_step: int | tf.Tensor = 0,
    ) -> tf.data.Dataset:
        """Returns the input pipeline of one section. Training starts at the batch of `start_step`.

        For training, it yields `(image, label)` endlessly, or `(image, label, weight)` if images
        may fail to decode. Labels are class numbers, or shares of the classes if images are mixed.
        For evaluation, it yields `(image, label, weight)`, each example once.
        """
        return self._inputs(params).dataset(input_context, start_step)

    def chunks(self, params: ImageDataConfig, replicas: int = 1) -> Chunks | None:
        """Returns the batches of a section by step, or None if it is streamed."""
        return self._inputs(params).chunks(replicas)

    def _inputs(self, params: ImageDataConfig) -> ImageInputs:
        source = self._source(params)
        return ImageInputs(
            source,
            params,
            self.images.num_classes,
            self.task_config.model.input_size,
            self.bad_images[section_of(params)],
            self.excluded_examples(params),
            functools.partial(self.mixture, params, source.origins),
        )

    def num_examples(self, params: ImageDataConfig) -> int:
        """Returns the number of examples of a section that are used."""
        source = section_source(self.task_config, params)
        return source.size - len(self.excluded_examples(params))

    def process_metrics(
        self,
        metrics: Iterable[TaskMetric],
        labels: Tensors,
        model_outputs: Tensors,
        **kwargs: tf.Tensor | None,
    ) -> None:
        """Updates the metrics. Mixed images count as the class with the largest share."""
        labels, weights = split_labels(labels)
        kwargs |= weights
        if len(labels.shape) == 2:
            labels = tf.argmax(labels, axis=-1, output_type=tf.int32)
        super().process_metrics(metrics, labels, model_outputs, **kwargs)

    def example_losses(self, labels: tf.Tensor, model_outputs: tf.Tensor) -> tf.Tensor:
        """Returns the cross entropy of each image in nats, times `loss_weight`: float32 [batch].

        Labels are int32 [batch], or shares of the classes, float32 [batch, classes].
        `model_outputs` are logits, float32 [batch, classes].
        """
        losses = self.task_config.losses
        if len(labels.shape) == 2:
            entropy = tf.nn.softmax_cross_entropy_with_logits(labels, model_outputs)
        elif losses.label_smoothing:
            smooth = tf.one_hot(labels, model_outputs.shape[-1])
            entropy = tf_keras.losses.categorical_crossentropy(
                smooth, model_outputs, from_logits=True, label_smoothing=losses.label_smoothing
            )
        else:
            entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model_outputs)
        return entropy if losses.loss_weight == 1.0 else entropy * losses.loss_weight

    def build_metrics(self, training: bool = True) -> list[TaskMetric]:
        """Returns the accuracy, and in evaluation the top-k accuracy and those of the config."""
        metrics = standard_metrics("classification")
        k = self.task_config.top_k
        if not training and self.images.num_classes > k:
            metrics.append(
                tf_keras.metrics.SparseTopKCategoricalAccuracy(k=k, name=f"top_{k}_accuracy")
            )
        for index, item in enumerate(() if training else self.task_config.metrics):
            metrics.append(make_metric(item, self.images.num_classes, f"task.metrics[{index}]"))
        return metrics

    def serving(self, model: tf_keras.Model) -> Serving:
        """Returns signatures for images as files and as tensors, and for the class names."""
        config = self.task_config
        images = self.images
        preprocessing = make_preprocessing(config.validation_data, is_in_memory=images.is_in_memory)
        # Without `input_size`, all images have the size of the network's input. A file of another
        # size is then resized without cropping.
        is_cropped = config.model.input_size is not None
        decode = functools.partial(
            decode_for_evaluation,
            shape=model.input_shape[1:],
            center_crop_fraction=preprocessing.center_crop_fraction if is_cropped else None,
            method=preprocessing.method,
        )
        return image_serving(model, images.class_names, decode)

    def predictor(
        self, signatures: Mapping[str, tf.types.experimental.Callable], *, top_k: int | None = None
    ) -> ImagePredictor:
        """Returns the predictor that labels image files."""
        return ImagePredictor(signatures, top_k)

    @property
    def class_names(self) -> Sequence[str]:
        """The names of the classes; empty if the dataset does not have them."""
        return self.images.labels or ()

    @property
    def images(self) -> TrainedImages:
        """What the run found out about its training images."""
        images: TrainedImages = self.learned
        return images

    def report_examples(self, model: tf_keras.Model, batches: Iterable[Tensors]) -> ReportExamples:
        """Returns the confusion matrix and the worst mistakes."""
        data = self.task_config.validation_data
        source = section_source(self.task_config, data)
        return classification_examples(
            model,
            batches,
            names=self.class_names,
            total=self.num_examples(data),
            place=source.place,
        )

    def _source(self, params: ImageDataConfig) -> ImageDataset:
        """Returns the images of a section, with the channels of the network's input.

        Raises `SettingError` if they do not fit those that the run was trained on.
        """
        images, config = self.images, self.task_config
        size = config.model.input_size
        images.check(section_source(config, params), section_of(params), size)
        source = load_source(params, size, images.num_classes, config.row_split)
        return source.with_channels(images.shape[2])


def _add_weight_decay(model: tf_keras.Model, rate: float) -> None:
    kernels = [variable for variable in model.trainable_variables if variable.shape.rank > 1]

    def decay() -> tf.Tensor:
        return rate * tf.add_n([tf.nn.l2_loss(kernel) for kernel in kernels])

    model.add_loss(decay)
