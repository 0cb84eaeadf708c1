"""Classification and regression of the rows of a table, with one or several targets."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf
import tf_keras

from orbit_runner.data.source import ArraySource
from orbit_runner.errors import RunnerError
from orbit_runner.registry import TABLE_MODELS
from orbit_runner.tasks.class_metrics import make_metric
from orbit_runner.tasks.imbalance.weighted_labels import split_labels, training_labels
from orbit_runner.tasks.metrics import AbsoluteError, RootSquaredError, SparseAccuracy
from orbit_runner.tasks.report_examples import ColumnImportance, ReportExamples
from orbit_runner.tasks.serving import Predictor, Serving
from orbit_runner.tasks.table_task import TableTask
from orbit_runner.tasks.tabular.config import (
    CLASSIFICATION,
    METRICS_OF_TYPE,
    TabularConfig,
    TargetConfig,
)
from orbit_runner.tasks.tabular.data_config import TableDataConfig
from orbit_runner.tasks.tabular.preprocessing import Preprocessing
from orbit_runner.tasks.tabular.report_examples import (
    EvaluatedTable,
    permute_columns,
    table_examples,
)

if TYPE_CHECKING:
    from orbit_runner.tasks.metrics import TaskMetric
    from orbit_runner.utils.types import Tensors

_METRICS = {"accuracy": SparseAccuracy, "mae": AbsoluteError, "rmse": RootSquaredError}


class TabularTask(TableTask):
    """Classification and regression of the rows of a table."""

    task_config: TabularConfig

    def build_model(self) -> tf_keras.Model:
        """Builds the network `model.name`, and writes the fitted values to the run directory.

        For its inputs and outputs, see `orbit_runner.tasks.tabular.networks`.
        """
        options = self.task_config.model.as_dict()
        return TABLE_MODELS.get(options.pop("name")).load()(fitted=self.fitted, **options)

    def train_step(
        self,
        inputs: Tensors,
        model: tf_keras.Model,
        optimizer: tf_keras.optimizers.Optimizer | tf_keras.optimizers.legacy.Optimizer,
        metrics: Sequence[TaskMetric] | None = None,
    ) -> dict[str, tf.Tensor]:
        """Trains on one batch on one replica; returns `loss`, a float32 scalar."""
        features, targets, weights = tf_keras.utils.unpack_x_y_sample_weight(inputs)
        classes = targets[self._class_target] if self.loss_by_class else None
        labels = training_labels(targets, weights, self.loss_by_class, classes)
        return super().train_step((features, labels), model, optimizer, metrics)

    def split_counts(self, inputs: Tensors) -> tuple[Tensors, tf.Tensor]:
        """Returns features, targets and any weights; and which rows are examples, float32 [batch].

        A row of the table may have the weight 0; a row that only fills up a batch is no example.
        """
        features, targets, counts = inputs
        if isinstance(counts, tuple):
            counts, weights = counts
            return (features, targets, weights), counts
        return (features, targets), counts

    def validation_step(
        self, inputs: Tensors, model: tf_keras.Model, metrics: Sequence[TaskMetric] | None = None
    ) -> dict[str, tf.Tensor]:
        """Evaluates one batch on one replica: `loss` is the weighted mean over its rows."""
        features, targets, weights = tf_keras.utils.unpack_x_y_sample_weight(inputs)
        if isinstance(weights, tuple):
            weights = weights[0] * weights[1]
        return super().validation_step((features, targets, weights), model, metrics)

    def build_losses(
        self,
        labels: Tensors,
        model_outputs: Tensors,
        aux_losses: Sequence[tf.Tensor] | None = None,
        sample_weight: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns the loss of a batch, a float32 scalar.

        In training with weights, `labels` are targets and weights. The sum is then
        divided by the number of rows, so that the mean over replicas equals that of one replica.
        """
        if not isinstance(labels, tuple):
            return super().build_losses(labels, model_outputs, aux_losses, sample_weight)
        loss = tf.reduce_mean(self.example_losses(labels[0], model_outputs) * labels[1])
        return tf.add_n([loss, *aux_losses]) if aux_losses else loss

    def example_losses(
        self, labels: Mapping[str, tf.Tensor], model_outputs: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        """Returns the loss of each row, the weighted sum over the targets: float32 [batch].

        For a classification, it is the cross entropy in nats. For a regression, it is the squared
        error in units of the variance of the training rows.
        """
        total = []
        for target in self.task_config.targets:
            name = target.column
            label = labels[name]
            output = model_outputs[name]
            if target.type == CLASSIFICATION:
                loss = tf.nn.sparse_softmax_cross_entropy_with_logits(label, output)
            else:
                loss = tf.square((output - label) / self.fitted.scales[name].deviation)
            total.append(loss * target.loss_weight)
        return tf.add_n(total)

    def build_metrics(self, training: bool = True) -> list[TaskMetric]:
        """Returns accuracy, or mean absolute and root mean squared error, of each target.

        In evaluation, those of the config follow. With several targets, the names of all begin with
        that of the target.
        """
        targets = self.task_config.targets
        metrics: list[TaskMetric] = [
            _METRICS[name](f"{self._metric_prefix(target)}{name}")
            for target in targets
            for name in METRICS_OF_TYPE[target.type]
        ]
        if not training:
            metrics += [metric for target in targets for metric in self._config_metrics(target)]
        return metrics

    def _config_metrics(self, target: TargetConfig) -> list[TaskMetric]:
        """Returns the metrics of the config for a target."""
        is_class = target.type == CLASSIFICATION
        num_classes = len(self.fitted.classes[target.column]) if is_class else None
        prefix = self._metric_prefix(target)
        return [
            make_metric(item, num_classes, f"task.metrics[{index}]", prefix)
            for index, item in self.task_config.metrics_of(target).items()
        ]

    def _metric_prefix(self, target: TargetConfig) -> str:
        return f"{target.column}_" if len(self.task_config.targets) > 1 else ""

    def process_metrics(
        self,
        metrics: Iterable[TaskMetric],
        labels: Tensors,
        model_outputs: Tensors,
        **kwargs: tf.Tensor | None,
    ) -> None:
        """Updates the metrics of each target with a batch.

        In training with weights, `labels` are targets and weights.
        """
        labels, weights = split_labels(labels)
        kwargs |= weights
        for target, metric in zip(self._metric_targets, metrics, strict=False):
            metric.update_state(labels[target.column], model_outputs[target.column], **kwargs)

    @functools.cached_property
    def _metric_targets(self) -> list[TargetConfig]:
        """The target of each metric of an evaluation. Training has the first of them."""
        targets = self.task_config.targets
        always = [target for target in targets for _ in METRICS_OF_TYPE[target.type]]
        return always + [t for t in targets for _ in self.task_config.metrics_of(t)]

    @functools.cached_property
    def _class_target(self) -> str:
        targets = self.task_config.targets
        return next(target.column for target in targets if target.type == CLASSIFICATION)

    def serving(self, model: tf_keras.Model) -> Serving:
        """Returns the signature `predict`, which takes columns by name, and descriptions."""
        from orbit_runner.tasks.tabular.serving import table_serving

        return table_serving(model, self.fitted)

    def predictor(
        self, signatures: Mapping[str, tf.types.experimental.Callable], *, top_k: int | None = None
    ) -> Predictor:
        """Returns the predictor for rows of tables.

        Raises `RunnerError` if `top_k` is given, because a row has one prediction.
        """
        if top_k is not None:
            raise RunnerError(
                f"got {top_k}, but each row has only one prediction",
                path="--top_k",
                code="no-effect",
            )
        from orbit_runner.tasks.tabular.predictor import RowPredictor

        return RowPredictor(signatures, self.task_config.train_data)

    def report_examples(
        self, model: tf_keras.Model, batches: Iterable[Tensors]
    ) -> ReportExamples | None:
        """Returns the predictions of each target by class or error, and the worst rows."""
        return table_examples(self._evaluated_table, model, batches)

    def column_importance(
        self, model: tf_keras.Model, batches: Iterable[Tensors], *, seed: int, seconds: float
    ) -> ColumnImportance | None:
        """Returns how much the loss rises if a column is permuted among the rows."""
        return permute_columns(self._evaluated_table, model, batches, seed=seed, seconds=seconds)

    @property
    def _evaluated_table(self) -> EvaluatedTable:
        return EvaluatedTable(
            targets=self.task_config.targets,
            fitted=self.fitted,
            part=self.table.part(self.task_config.validation_data),
            split_counts=self.split_counts,
            example_losses=self.example_losses,
        )

    @property
    def table_config(self) -> TabularConfig:
        """The config."""
        config: TabularConfig = self.task_config
        return config

    @property
    def fitted(self) -> Preprocessing:
        """The values fitted on the training rows, from the run directory if they are there."""
        return self.table.fitted

    def arrays(self, params: TableDataConfig) -> ArraySource:
        """Returns the rows of a section as arrays, which are created once."""
        return self.table.arrays(params)
