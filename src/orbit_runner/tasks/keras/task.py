"""Training of any Keras model, with losses and metrics by the names of Keras."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner.data.images.dataset import ImageDataset
from orbit_runner.data.images.decode_errors import BadImages
from orbit_runner.data.indexed import indexed_arrays
from orbit_runner.data.order.mixture import Mixture
from orbit_runner.data.source import ArraySource
from orbit_runner.data.step_batches import Chunks
from orbit_runner.errors import DataError, RunnerError, SettingError
from orbit_runner.tasks.array_inputs import ArrayInputs
from orbit_runner.tasks.base import EXAMPLES, Task
from orbit_runner.tasks.image_classification.inputs import chunks as image_chunks
from orbit_runner.tasks.image_classification.inputs import eval_inputs, train_inputs
from orbit_runner.tasks.imbalance.classes import Classes
from orbit_runner.tasks.imbalance.weighted_labels import training_labels
from orbit_runner.tasks.keras.by_output import named_items
from orbit_runner.tasks.keras.config import PLACES, SECTIONS, KerasConfig, KerasDataConfig
from orbit_runner.tasks.keras.given_models import CompiledSettings
from orbit_runner.tasks.keras.keras_names import is_passed_function
from orbit_runner.tasks.keras.model_builder import (
    build_model,
    check_added_metrics,
    check_vocabularies,
)
from orbit_runner.tasks.keras.objective import Objective, OutputLoss, built_metrics, make_objective
from orbit_runner.tasks.keras.outputs import outputs_of, symbolic_inputs
from orbit_runner.tasks.keras.predictor import ArrayPredictor
from orbit_runner.tasks.keras.serving import make_serving
from orbit_runner.tasks.keras.sources import (
    Examples,
    W,
    X,
    Y,
    example_classes,
    example_mixture,
    label_of,
    section_source,
    specs_of,
)
from orbit_runner.tasks.keras.stream import StreamSource
from orbit_runner.tasks.keras.trained_arrays import TrainedArrays, without_limits
from orbit_runner.tasks.serving import Serving
from orbit_runner.utils.log import note

if TYPE_CHECKING:
    from orbit_runner.config.schema.optimizers import Optimization
    from orbit_runner.config.schema.runtime import RuntimeConfig
    from orbit_runner.tasks.metrics import TaskMetric
    from orbit_runner.utils.types import Tensors

_INPUTS = ArrayInputs(X, Y, W)
_NO_VALIDATION = (
    "is not set\nset it, set task.validation_split, or train without evaluations: --mode=train"
)


class KerasTask(Task):
    """Trains a model that a function of the user builds.

    Loss and metrics are known once `build_model` was called.
    """

    task_config: KerasConfig

    def __init__(self, params: KerasConfig, **kwargs: Any) -> None:
        super().__init__(params, **kwargs)
        limits = params.train_data.max_bad_images, params.validation_data.max_bad_images
        self.bad_training_images = BadImages(SECTIONS[0], limits[0])
        self.bad_validation_images = BadImages(SECTIONS[1], limits[1])
        self._objective: Objective | None = None
        self._compiled: CompiledSettings | None = None

    def build_model(self) -> tf_keras.Model:
        """Builds the model, and checks that it accepts the data and that the loss fits."""
        config = self.task_config
        specs = self._specs()
        model, compiled = build_model(config.model, symbolic_inputs(specs))
        check_vocabularies(model, self.assets)
        labels = self._trained_arrays.labels
        names = [*labels] if isinstance(labels, Mapping) else []
        outputs = outputs_of(model, symbolic_inputs(specs), names)
        check_added_metrics(model)
        self._compiled = compiled
        if compiled is not None:
            config = compiled.complete(config)
            labels = labels if not compiled.ignores_classes else without_limits(labels)
        self._objective = make_objective(config, labels, outputs)
        return model

    def create_optimizer(
        self,
        optimizer_config: Optimization,
        runtime_config: RuntimeConfig | None = None,
        dp_config: Any = None,
    ) -> tf_keras.optimizers.Optimizer | tf_keras.optimizers.legacy.Optimizer:
        """Creates the optimizer, and notes if `compile` of the model was told another one."""
        if self._compiled is not None and self._compiled.has_other_optimizer(optimizer_config):
            note(
                f"note: the model is compiled with the optimizer {self._compiled.optimizer}, which "
                "is not used; trainer.optimizer_config has the optimizer of the run"
            )
        return super().create_optimizer(optimizer_config, runtime_config, dp_config)

    @functools.cached_property
    def starts_at_step(self) -> bool:
        """Whether the training data can start at any step; tf.data datasets cannot."""
        if not self.task_config.train_data.function:
            return True
        try:
            source = section_source(self.task_config, SECTIONS[0])
        except DataError:  # Of an evaluation, which does not need them.
            return True
        return not isinstance(source, StreamSource)

    def describe_example(self, inputs: Tensors, index: int) -> dict[str, str | int | float]:
        """Returns the label of an example of the validation data."""
        source = section_source(self.task_config, SECTIONS[1], self._trained_arrays.classes)
        return {} if source is None else label_of(source, index)

    def build_inputs(
        self,
        params: KerasDataConfig,
        input_context: tf.distribute.InputContext | None = None,
        start_step: int | tf.Tensor = 0,
    ) -> tf.data.Dataset:
        """Returns the input pipeline of one section. Training starts at the batch of `start_step`.

        For training, it yields `(x, y)` or `(x, y, w)` endlessly. For evaluation, it yields each
        example once, with its count.
        """
        source = self._source(params)
        if isinstance(source, ImageDataset):
            return self._image_inputs(params, source, input_context, start_step)
        if isinstance(source, StreamSource):
            make = source.train if params.is_training else source.evaluate
            return make(params, input_context)
        if params.is_training:
            excluded = self.excluded_examples(params)
            mixture = self._mixture(params, source, excluded)
            return _INPUTS.train(source, params, input_context, start_step, excluded, mixture)
        return _INPUTS.evaluate(source, params, input_context)

    def _image_inputs(
        self,
        params: KerasDataConfig,
        source: ImageDataset,
        input_context: tf.distribute.InputContext | None,
        start_step: int | tf.Tensor,
    ) -> tf.data.Dataset:
        size = self.task_config.input_size
        data = self._section(params)
        channels = self._specs()[X][0][2]
        split = self.task_config.row_split(_section_name(params))
        classes = self._known_classes(source)
        if params.is_training:
            excluded = self.excluded_examples(params)
            bad = self.bad_training_images
            batches = train_inputs(
                data, input_context, start_step, classes, size, bad, excluded, channels, split
            )
        else:
            bad = self.bad_validation_images
            batches = eval_inputs(data, input_context, classes, size, bad, channels, split)
        return batches.map(_with_float_pixels, num_parallel_calls=tf.data.AUTOTUNE)

    def _known_classes(self, source: ImageDataset) -> int | None:
        """Returns the number of classes that labels must be below, None if it is not known."""
        targets = () if self._objective is None else self._objective.targets
        widths = [target.outputs.width for target in targets if target.loss.kind == "sparse"]
        return source.known_classes() or (widths[0] if len(widths) == 1 else None)

    def chunks(self, params: KerasDataConfig, replicas: int = 1) -> Chunks | None:
        """Returns the batches of a section by step."""
        source = self._source(params)
        if isinstance(source, StreamSource):
            return None
        excluded = self.excluded_examples(params)
        if isinstance(source, ImageDataset):
            size = self.task_config.input_size
            classes = self._known_classes(source)
            split = self.task_config.row_split(_section_name(params))
            images = image_chunks(self._section(params), classes, size, replicas, excluded, split)
            return images and dataclasses.replace(
                images, make=lambda steps: _with_float_pixels(*images.make(steps))
            )
        if indexed_arrays(source):  # Only a pipeline reads ahead.
            return None
        mixture = self._mixture(params, source, excluded)
        return _INPUTS.chunks(source, params, replicas, excluded, mixture)

    def num_examples(self, params: KerasDataConfig) -> int | None:
        """Returns the number of examples of a section that are used, None if it is not known."""
        source = self._source(params)
        if isinstance(source, StreamSource):
            return self._trained_arrays.size if params.is_training else None
        return source.size - len(self.excluded_examples(params))

    def full_batches(self, params: KerasDataConfig) -> int:
        """Returns the number of batches of an evaluation in which each row is an example.

        It is 0 if images may fail to decode, because each batch may then have rows without one.
        """
        return 0 if params.max_bad_images else super().full_batches(params)

    def train_step(
        self,
        inputs: Tensors,
        model: tf_keras.Model,
        optimizer: tf_keras.optimizers.Optimizer | tf_keras.optimizers.legacy.Optimizer,
        metrics: Sequence[TaskMetric] | None = None,
    ) -> dict[str, tf.Tensor]:
        """Trains on one batch on one replica; returns `loss`, a float32 scalar."""
        features, labels, weights = tf_keras.utils.unpack_x_y_sample_weight(inputs)
        targets = training_labels(labels, weights, self.loss_by_class)
        return super().train_step((features, targets), model, optimizer, metrics)

    def split_counts(self, inputs: Tensors) -> tuple[Tensors, tf.Tensor]:
        """Returns `(x, y, (None, w))`, and which rows are examples, float32 [batch].

        `w` is None if examples have no weights.
        """
        features, labels, counts = inputs
        counts, weights = counts if isinstance(counts, tuple) else (counts, None)
        return (features, labels, (None, weights)), counts

    def validation_step(
        self, inputs: Tensors, model: tf_keras.Model, metrics: Sequence[TaskMetric] | None = None
    ) -> dict[str, tf.Tensor]:
        """Evaluates one batch on one replica: `loss` is the mean over the examples.

        `inputs` are those of `build_inputs` or `split_counts`.
        """
        features, labels, counts = inputs
        counts, weights = counts if isinstance(counts, tuple) else (counts, None)
        outputs = self.inference_step(features, model)
        losses = self._require_objective()(labels, outputs, counts)
        number = tf.cast(tf.shape(losses)[0], tf.float32)
        if weights is not None:
            losses *= weights
        if counts is not None:
            losses *= counts
            number = tf.reduce_sum(counts)
        loss = tf.math.divide_no_nan(tf.reduce_sum(losses), number)
        if model.losses:
            loss = tf.add_n([loss, *(tf.cast(term, tf.float32) for term in model.losses)])
        targets = labels if weights is None else (labels, weights)
        self.process_metrics(metrics or [], targets, outputs, sample_weight=counts)
        return {self.loss: loss, EXAMPLES: number}

    def build_losses(
        self,
        labels: Tensors,
        model_outputs: Tensors,
        aux_losses: Sequence[tf.Tensor] | None = None,
        sample_weight: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns the loss of a batch, a float32 scalar.

        In training with weights, `labels` are labels and weights. As in Keras, the sum of
        the weighted losses is divided by the number of examples, so that the mean over replicas is
        that of a single replica.
        """
        if not isinstance(labels, tuple):
            return super().build_losses(labels, model_outputs, aux_losses, sample_weight)
        loss = tf.reduce_mean(self.example_losses(labels[0], model_outputs) * labels[1])
        return tf.add_n([loss, *aux_losses]) if aux_losses else loss

    def training_classes(self) -> Classes:
        """Returns the class of each training example."""
        return example_classes(self._source(self.task_config.train_data))

    def example_losses(self, labels: Tensors, model_outputs: Tensors) -> tf.Tensor:
        """Returns the loss of each example, float32 [batch]."""
        return self._require_objective()(labels, model_outputs)

    def process_metrics(
        self,
        metrics: Iterable[TaskMetric],
        labels: Tensors,
        model_outputs: Tensors,
        **kwargs: tf.Tensor | None,
    ) -> None:
        """Updates the metrics, which count each example once, whatever its weight.

        The losses of outputs are weighted.
        """
        labels, weights = labels[:2] if isinstance(labels, tuple) else (labels, None)
        for metric in built_metrics(metrics):
            more = {"loss_weight": weights} if isinstance(metric, OutputLoss) else {}
            metric.update_state(labels, model_outputs, **more, **kwargs)

    def build_metrics(self, training: bool = True) -> list[TaskMetric]:
        """Returns the metrics of the config."""
        return self._require_objective().build_metrics()

    def inexact_reasons(self) -> list[str]:
        """Returns why the config alone does not reproduce a run: code that it cannot name."""
        config = self.task_config
        items = [("task.model", config.model.build), *named_items(config.loss, config.metrics)]
        return [
            f"{path}: {name} is not in a module that can be imported"
            for path, name in items
            if name and is_passed_function(name)
        ]

    def serving(self, model: tf_keras.Model) -> Serving:
        """Returns the signature `predict`, which maps inputs to outputs."""
        if self._objective is None:  # `model` is the network of an exported file.
            self.build_model()
        classes = {
            path.partition(".")[2]: names for path, names in self._trained_arrays.classes.items()
        }
        return make_serving(model, self._specs(), self._require_objective().kinds, classes)

    def predictor(
        self, signatures: Mapping[str, tf.types.experimental.Callable], *, top_k: int | None = None
    ) -> ArrayPredictor:
        """Returns the predictor for rows of arrays and lines of JSON."""
        if top_k is not None:
            raise RunnerError(
                "has no effect, because all outputs are printed; remove it",
                path="--top_k",
                code="no-effect",
            )
        return ArrayPredictor(signatures)

    def _mixture(
        self, params: KerasDataConfig, source: ArraySource, excluded: np.ndarray
    ) -> Mixture | None:
        try:
            return example_mixture(params, source, excluded)
        except DataError as error:
            raise SettingError(
                f"task.train_data.{error.field}", str(error), code=error.code
            ) from error

    def _require_objective(self) -> Objective:
        if self._objective is None:
            raise RuntimeError("build_model must be called first")
        return self._objective

    def _source(self, params: KerasDataConfig) -> Examples:
        section = _section_name(params)
        try:
            source = section_source(self.task_config, section, self._trained_arrays.classes)
        except DataError as error:
            raise self._data_error(section, error) from error
        if source is None:
            raise SettingError(f"task.{section}.source", _NO_VALIDATION, code="not-set")
        self._trained_arrays.check(specs_of(source, self.task_config.input_size), section)
        return source

    def _section(self, params: KerasDataConfig) -> KerasDataConfig:
        """Returns a section with the source that it reads."""
        section = self.task_config.section(_section_name(params))
        assert section is not None  # `_source` reports it.
        places = {name: getattr(section, name) for name in PLACES}
        return params.replace(**places)

    @property
    def _trained_arrays(self) -> TrainedArrays:
        """What the run found out about its arrays."""
        arrays: TrainedArrays = self.learned
        return arrays

    def _specs(self) -> Mapping[str, tuple[tuple[int, ...], str]]:
        """Returns shape and type of each array, also of arrays that only another process has."""
        return self._trained_arrays.specs


def _section_name(params: KerasDataConfig) -> str:
    return SECTIONS[0] if params.is_training else SECTIONS[1]


def _with_float_pixels(images: tf.Tensor, *rest: tf.Tensor) -> Tensors:
    return tf.cast(images, tf.float32), *rest
