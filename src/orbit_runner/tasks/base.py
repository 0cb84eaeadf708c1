"""`Task`, the base class of all tasks of this package: Model Garden's `Task` with example weights.

A task that derives from it also runs in Model Garden's runner. This runner accepts any subclass of
`official.core.base_task.Task`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf
import tf_keras
from official.core import base_task

from orbit_runner.config.schema.task_data import TaskData, task_data
from orbit_runner.data.chunks import Chunks
from orbit_runner.data.images.decode_errors import BadImages
from orbit_runner.data.order.epochs import NO_EXAMPLES
from orbit_runner.data.order.mixture import Mixture
from orbit_runner.errors import DataError, RunnerError, SettingError
from orbit_runner.tasks.array_inputs import chunks_dataset
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.imbalance.classes import Classes, class_weights, training_mixture
from orbit_runner.tasks.initial_weights import LoadedWeights, load_weights
from orbit_runner.tasks.report_examples import ReportExamples
from orbit_runner.tasks.serving import Predictor, Serving
from orbit_runner.tasks.shared_config import SECTIONS

if TYPE_CHECKING:
    from orbit_runner.config.schema.data import DataConfig
    from orbit_runner.tasks.metrics import TaskMetric
    from orbit_runner.utils.types import Tensors

EXAMPLES = "examples"


class WeightedLabels(NamedTuple):
    """Labels, and the weights of the examples, float32 [batch] each."""

    labels: Tensors
    weights: tf.Tensor  # In the loss.
    counts: tf.Tensor  # In the metrics, which ignore class weights.


def training_labels(
    labels: Tensors,
    weights: tf.Tensor | None,
    by_class: Mapping[str, float],
    classes: tf.Tensor | None = None,
) -> Tensors:
    """Returns the labels of a training batch as `build_losses` and `process_metrics` take them.

    Args:
        labels: The labels.
        weights: The weights of the examples, float32 [batch]; all 1 if None.
        by_class: The weight of each class, in the order of the class numbers; empty for none.
        classes: The class of each example: integers [batch] or [batch, 1], or its shares of the
            classes, float [batch, classes], which give the mean weight. `labels` if None.

    Returns:
        The labels, or `WeightedLabels` if examples have weights.
    """
    if not by_class:
        return labels if weights is None else WeightedLabels(labels, weights, weights)
    example_weights = _weights(
        np.array([*by_class.values()], np.float32), labels if classes is None else classes
    )
    if weights is None:
        return WeightedLabels(labels, example_weights, tf.ones_like(example_weights))
    return WeightedLabels(labels, example_weights * weights, weights)


def split_labels(labels: Tensors) -> tuple[Tensors, dict[str, tf.Tensor]]:
    """Returns the labels alone, and the arguments of a metric with the weights of its examples."""
    if not isinstance(labels, WeightedLabels):
        return labels, {}
    return labels.labels, {"sample_weight": labels.counts}


def _weights(table: np.ndarray, classes: tf.Tensor) -> tf.Tensor:
    if classes.shape.rank == 2 and classes.shape[1] != 1:
        return tf.linalg.matvec(tf.cast(classes, tf.float32), tf.constant(table))
    return tf.gather(tf.constant(table), tf.cast(tf.reshape(classes, [-1]), tf.int32))


def section_of(params: DataConfig) -> str:
    """Returns the name of a section: `train_data` or `validation_data`."""
    return "train_data" if params.is_training else "validation_data"


def drop_padding(task: base_task.Task, inputs: Tensors) -> tuple[Tensors, tf.Tensor | None]:
    """Returns a batch of an evaluation without the rows that only fill it up.

    The second value is the number of its rows, an integer scalar; None if no row can be padding.
    """
    parts, counts = split_counts(task, inputs)
    if counts is None or any(isinstance(part, tf.SparseTensor) for part in tf.nest.flatten(parts)):
        return inputs, None
    rows = tf.where(counts > 0)[:, 0]

    def select(part: tf.Tensor | None) -> tf.Tensor | None:
        return part if part is None or part.shape.rank == 0 else tf.gather(part, rows)

    return tf.nest.map_structure(select, parts), tf.size(rows)


def split_counts(task: base_task.Task, inputs: Tensors) -> tuple[Tensors, tf.Tensor | None]:
    """Returns what `Task.split_counts` returns; tasks of Model Garden have no padding."""
    split = getattr(task, "split_counts", None)
    return (inputs, None) if split is None else split(inputs)


def _require_weights(weights: Tensors | None) -> None:
    """Raises SettingError if the third part of a training batch cannot be weights of examples."""
    if weights is None or (
        tf.is_tensor(weights) and weights.dtype.is_floating and weights.shape.rank in (None, 1)
    ):
        return
    raise SettingError(
        "task",
        f"the third part of a training batch is {weights}, expected the weights of its examples, "
        "float [batch]\nif it is something else, override train_step and split_counts",
        code="wrong-type",
    )


class Task(base_task.Task):
    """A single-replica view of training and evaluation.

    Inputs are `(features, labels)` or `(features, labels, weights)`. In an evaluation, weights are
    float32 [batch], 0 for rows that only fill up a batch; or a pair: the counts of the rows, 0 for
    those that fill up, else 1, and the weights of the examples.

    Attributes:
        counts_examples: Whether all weights of an evaluation are 0 or 1, except those of a pair.
    """

    counts_examples: ClassVar[bool] = False
    _excluded: np.ndarray | None = None

    @functools.cached_property
    def bad_images(self) -> Mapping[str, BadImages]:
        """The images of each section that do not decode, counted over the whole run."""
        config = self.task_config
        return {name: BadImages(name, getattr(config, name).max_bad_images) for name in SECTIONS}

    @functools.cached_property
    def assets(self) -> Assets:
        """What the run learned from its training data; see `orbit_runner.tasks.assets`.

        `build_model` must ask for all of them, because they are written when the run begins.
        """
        return Assets(self.logging_dir or None)

    @property
    def data(self) -> TaskData:
        """What the task reads, according to its config."""
        return task_data(self.task_config)

    @functools.cached_property
    def learned(self) -> Any:
        """What the run learned from its training data, as `TaskData.learn` returns it."""
        with self.data_scope("train_data"):
            return self.data.learn(self.assets)

    def initialize(self, model: tf_keras.Model) -> LoadedWeights | None:
        """Loads `init_checkpoint` into a new model, or otherwise the weights that its config names.

        Variables that `init_ignore` selects keep their values.

        Args:
            model: The model to initialize.

        Returns:
            What was loaded, or None.

        Raises:
            SettingError: There is no checkpoint at that path, it does not fit the model, or a
                pattern of `init_ignore` matches nothing.
        """
        config = self.task_config
        if config.init_checkpoint:
            return load_weights(model, config.init_checkpoint, getattr(config, "init_ignore", ()))
        return self.load_pretrained(model)

    def load_pretrained(self, model: tf_keras.Model) -> LoadedWeights | None:
        """Loads the published weights that the config of the model names into a new model.

        Args:
            model: The model to initialize.

        Returns:
            What was loaded; None by default.
        """
        return None

    def train_step(
        self,
        inputs: Tensors,
        model: tf_keras.Model,
        optimizer: tf_keras.optimizers.Optimizer | tf_keras.optimizers.legacy.Optimizer,
        metrics: Sequence[TaskMetric] | None = None,
    ) -> dict[str, tf.Tensor]:
        """Trains on one batch on one replica, with the weights of its examples and classes.

        Args:
            inputs: `(features, labels)` or `(features, labels, weights)`.
            model: The model.
            optimizer: The optimizer.
            metrics: The metrics from `build_metrics`.

        Returns:
            `loss`, a float32 scalar.
        """
        if isinstance(inputs, tuple) and (len(inputs) == 3 or self.loss_by_class):
            features, labels, weights = tf_keras.utils.unpack_x_y_sample_weight(inputs)
            _require_weights(weights)
            classes = self.class_labels(labels) if self.loss_by_class else None
            inputs = features, training_labels(labels, weights, self.loss_by_class, classes)
        return super().train_step(inputs, model, optimizer, metrics)

    def class_labels(self, labels: Tensors) -> tf.Tensor:
        """Returns the classes that `class_weights` are for. Tasks with other labels override it.

        Args:
            labels: The labels of a batch.

        Returns:
            Class numbers, integers [batch], or shares of the classes, float [batch, classes].
        """
        return labels

    def build_losses(
        self,
        labels: Tensors,
        model_outputs: Tensors,
        aux_losses: Sequence[tf.Tensor] | None = None,
        sample_weight: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns the loss of a batch: the weighted mean over its examples plus auxiliary losses.

        Args:
            labels: The labels, in training with weights as `WeightedLabels`. The sum of the
                weighted losses is then divided by the number of examples, as in Keras, so that
                the mean over replicas equals that of a single replica.
            model_outputs: The outputs of the model.
            aux_losses: Scalars to add, such as weight decay.
            sample_weight: float32 [batch], the weight of each example; all equal if None.

        Returns:
            A float32 scalar.
        """
        if isinstance(labels, WeightedLabels):
            losses = self.example_losses(labels.labels, model_outputs) * labels.weights
        else:
            losses = self.example_losses(labels, model_outputs)
        if sample_weight is None:
            loss = tf.reduce_mean(losses)
        else:
            total = tf.reduce_sum(losses * sample_weight)
            loss = tf.math.divide_no_nan(total, tf.reduce_sum(sample_weight))
        return tf.add_n([loss, *aux_losses]) if aux_losses else loss

    def example_losses(self, labels: Tensors, model_outputs: Tensors) -> tf.Tensor:
        """Returns the loss of each example. Subclasses must override it, or `build_losses`.

        Args:
            labels: The labels.
            model_outputs: The outputs of the model.

        Returns:
            float32 [batch].
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define `example_losses` or `build_losses`"
        )

    def validation_step(
        self, inputs: Tensors, model: tf_keras.Model, metrics: Sequence[TaskMetric] | None = None
    ) -> dict[str, tf.Tensor]:
        """Evaluates one batch on one replica.

        Args:
            inputs: Those of `build_inputs` or `split_counts`.
            model: The model.
            metrics: The metrics from `build_metrics`.

        Returns:
            `loss`, the mean over the batch's examples, and `examples`, their number; both float32
            scalars.
        """
        features, labels, weights = tf_keras.utils.unpack_x_y_sample_weight(inputs)
        if isinstance(weights, tuple):
            weights = weights[0] * weights[1]
        outputs = self.inference_step(features, model)
        loss = self.build_losses(labels, outputs, model.losses, weights)
        self.process_metrics(metrics or [], labels, outputs, sample_weight=weights)
        size = tf.shape(tf.nest.flatten(features)[0])[0]
        count = tf.cast(size, tf.float32) if weights is None else tf.reduce_sum(weights)
        return {self.loss: loss, EXAMPLES: count}

    def split_counts(self, inputs: Tensors) -> tuple[Tensors, tf.Tensor | None]:
        """Returns a batch of an evaluation, and which of its rows are examples.

        An evaluation leaves the other rows out before it calls `validation_step`, except on a TPU.

        Args:
            inputs: A batch of `build_inputs`.

        Returns:
            What `validation_step` gets if all rows are examples; and float32 [batch], 0 for rows
            that only fill up the batch, or None if there are none.
        """
        if not isinstance(inputs, tuple) or len(inputs) != 3:
            return inputs, None
        features, labels, counts = inputs
        if isinstance(counts, tuple):
            counts, weights = counts
            return (features, labels, weights), counts
        if not tf.is_tensor(counts):
            return inputs, None
        return (features, labels) if self.counts_examples else inputs, counts

    def full_batches(self, params: Any) -> int:
        """Returns the number of batches of an evaluation before the first one with padding.

        Args:
            params: The section `validation_data`.

        Returns:
            0 if it is not known, or if images may fail to decode, because each batch may then have
            rows without an image. Every batch is then checked, which takes time.
        """
        if getattr(params, "max_bad_images", 0):
            return 0
        count = getattr(self, "num_examples", None)
        size = None if count is None else count(params)
        return 0 if size is None else size // max(1, params.global_batch_size)

    def build_inputs(
        self,
        params: Any,
        input_context: tf.distribute.InputContext | None = None,
        start_step: int | tf.Tensor = 0,
    ) -> tf.data.Dataset:
        """Returns the input pipeline of a section, by default of the batches of `chunks`.

        Args:
            params: The section, `train_data` or `validation_data`.
            input_context: Selects the worker's slice of each batch; None for the whole batch.
            start_step: The step of the first batch of training, which never ends.

        Returns:
            The batches for one replica; an evaluation has each example once.
        """

        def make_chunks(replicas: int) -> Chunks:
            chunks = self.chunks(params, replicas)
            if chunks is None:
                raise NotImplementedError(
                    f"{type(self).__name__} must define `build_inputs` or `chunks`"
                )
            return chunks

        return chunks_dataset(make_chunks, params, input_context, start_step)

    def chunks(self, params: Any, replicas: int = 1) -> Chunks | None:
        """Returns the batches of a section by step, or None if the data can only be streamed.

        If it is not None, a step can create its batch itself, without an input pipeline.

        Args:
            params: The section, `train_data` or `validation_data`.
            replicas: Number of replicas in sync.

        Returns:
            The same batches as `build_inputs`. None by default.
        """
        return None

    def batch_at(self, params: Any) -> Callable[[tf.Tensor], Tensors] | None:
        """Returns a function that creates the batch of one training step, or None.

        Asynchronous training needs it, because a worker does not run all steps in order.

        Args:
            params: The section.

        Returns:
            A function from the number of a step, an int64 scalar, to the batch that `build_inputs`
            yields for it. None if the data can only be streamed.
        """
        chunks = self.chunks(params)
        return None if chunks is None else chunks.batch_at

    def excluded_examples(self, params: DataConfig) -> np.ndarray:
        """Returns the training examples that `exclude` leaves out.

        Args:
            params: The section; only training leaves examples out.

        Returns:
            Their indices, int64 [k], ascending.

        Raises:
            SettingError: There is no such example, or the data cannot be read.
        """
        if not params.is_training or not getattr(params, "exclude", ""):
            return NO_EXAMPLES
        if self._excluded is None:
            with self.data_scope("train_data"):
                self._excluded = self.data.training_examples(params, self.logging_dir).excluded
        return self._excluded

    @contextlib.contextmanager
    def data_scope(self, section: str) -> Iterator[None]:
        """Reports a dataset that cannot be read in a `with` block as a problem of its setting.

        Args:
            section: The section that the dataset belongs to.

        Raises:
            SettingError: Instead of a `DataError`.
        """
        try:
            yield
        except DataError as error:
            setting = self.data.setting_of_error(section, error)
            raise SettingError(f"task.{setting}", str(error), code=error.code) from error

    def training_classes(self) -> Classes:
        """Returns the class of each training example, as `TaskData.training_classes` does."""
        classes: Classes = self.data.training_classes()
        return classes

    def mixture(self, params: Any, origins: np.ndarray | None) -> Mixture | None:
        """Returns the mixture of a section's examples; None if all are equally likely.

        `origins` are the sources of the mixture that the examples come from, if there are several.
        Raises `SettingError` if a source or a class with a weight has no examples.
        """
        excluded = self.excluded_examples(params)
        with self.data_scope(section_of(params)):
            return training_mixture(params, origins, self.training_classes, excluded)

    @functools.cached_property
    def loss_by_class(self) -> dict[str, float]:
        """The weight of each class in the training loss by name; empty if all are 1."""
        setting = getattr(self.task_config, "class_weights", "")
        if not setting:
            return {}
        excluded = self.excluded_examples(self.task_config.train_data)
        return class_weights(setting, self.training_classes(), excluded)

    def serving(self, model: tf_keras.Model) -> Serving:
        """Returns the signatures that `runner export` saves.

        Args:
            model: The model, with restored weights.

        Raises:
            RunnerError: The task does not define `serving`.
        """
        raise RunnerError(
            f"{type(self).__name__} has no signatures to export: it must define `serving`",
            code="missing-method",
        )

    def predictor(
        self, signatures: Mapping[str, tf.types.experimental.Callable], *, top_k: int | None = None
    ) -> Predictor:
        """Returns the predictor that `runner predict` uses.

        Args:
            signatures: The signatures from `serving`, of a model in memory or of a SavedModel. Each
                takes keyword arguments and returns a dict of tensors.
            top_k: Number of answers per item, for tasks with several. None for the task's default.

        Raises:
            RunnerError: The task does not define `predictor`.
        """
        raise RunnerError(
            f"{type(self).__name__} does not support predictions: it must define `predictor`",
            code="missing-method",
        )

    def report_examples(
        self, model: tf_keras.Model, batches: Iterable[Tensors]
    ) -> ReportExamples | None:
        """Returns what `report.html` shows of an evaluation, or None if it shows nothing.

        It is called after some evaluations, in a run of a single process, and runs eagerly. It must
        change neither the model nor the task.

        Args:
            model: The model, with the weights of the evaluation. Call it with `training=False`.
            batches: The batches of the validation data, each split into parts of at most 64
                examples. They end when the time for the report is over, and can be left unread.

        Returns:
            Pictures, tables or a confusion matrix. None by default.
        """
        return None

    def process_metrics(
        self,
        metrics: Iterable[TaskMetric],
        labels: Tensors,
        model_outputs: Tensors,
        **kwargs: tf.Tensor | None,
    ) -> None:
        """Updates the metrics with a batch.

        Args:
            metrics: The metrics from `build_metrics`.
            labels: The labels.
            model_outputs: The outputs of the model.
            **kwargs: `sample_weight`, float32 [batch], if the examples have weights.
        """
        labels, weights = split_labels(labels)
        kwargs |= weights
        for metric in metrics:
            metric.update_state(labels, model_outputs, **kwargs)
