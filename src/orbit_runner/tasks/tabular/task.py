"""Classification and regression of the rows of a table."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner.data.chunks import Chunks
from orbit_runner.data.source import ArraySource
from orbit_runner.data.tables.columns import (
    CATEGORY,
    DATE,
    DAY_SECONDS,
    NUMBER,
    Column,
    TablePart,
    class_numbers,
)
from orbit_runner.errors import DataError, shorten
from orbit_runner.registry import TABLE_MODELS
from orbit_runner.tasks.array_inputs import ArrayInputs
from orbit_runner.tasks.base import Task, section_of, split_labels
from orbit_runner.tasks.class_metrics import make_metric, standard_metrics
from orbit_runner.tasks.report_examples import ReportExamples
from orbit_runner.tasks.serving import Predictor, Serving, require_no_top_k
from orbit_runner.tasks.table_checks import unused_columns
from orbit_runner.tasks.tabular.config import REGRESSION, TabularConfig
from orbit_runner.tasks.tabular.data_config import TableDataConfig
from orbit_runner.tasks.tabular.layers import MISSING_DAY
from orbit_runner.tasks.tabular.networks import CATEGORICAL, DATES, NUMERIC, TOKENS
from orbit_runner.tasks.tabular.preprocessing import Preprocessing, TextFit
from orbit_runner.tasks.tabular.report_examples import table_examples
from orbit_runner.tasks.tabular.sources import table_query
from orbit_runner.utils.log import note

if TYPE_CHECKING:
    from orbit_runner.tasks.metrics import TaskMetric
    from orbit_runner.utils.types import Tensors

INPUTS = ArrayInputs("features", "targets", "weight")


class TabularTask(Task):
    """Classification and regression of the rows of a table."""

    counts_examples = True
    task_config: TabularConfig

    def build_model(self) -> tf_keras.Model:
        """Builds the network `model.name`, and writes the fitted values to the run directory.

        For its inputs and outputs, see `orbit_runner.tasks.tabular.networks`.
        """
        config = self.task_config.model
        return TABLE_MODELS.get(config.name).load()(config, self.fitted)

    def class_labels(self, labels: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Returns the classes of the target."""
        return labels[self.task_config.target.column]

    def example_losses(
        self, labels: Mapping[str, tf.Tensor], model_outputs: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        """Returns the loss of each row, float32 [batch].

        For a classification, it is the cross entropy in nats. For a regression, it is the squared
        error in units of the variance of the training rows.
        """
        name = self.task_config.target.column
        label, output = labels[name], model_outputs[name]
        scale = self.fitted.scale
        if scale is None:
            return tf.nn.sparse_softmax_cross_entropy_with_logits(label, output)
        return tf.square((output - label) / scale.deviation)

    def build_metrics(self, training: bool = True) -> list[TaskMetric]:
        """Returns accuracy, or mean absolute and root mean squared error.

        In evaluation, those of the config follow.
        """
        metrics = standard_metrics(self.task_config.target.type)
        num_classes = len(self.fitted.classes) or None
        for index, item in enumerate(() if training else self.task_config.metrics):
            metrics.append(make_metric(item, num_classes, f"task.metrics[{index}]"))
        return metrics

    def process_metrics(
        self,
        metrics: Iterable[TaskMetric],
        labels: Tensors,
        model_outputs: Tensors,
        **kwargs: tf.Tensor | None,
    ) -> None:
        """Updates the metrics with a batch."""
        labels, weights = split_labels(labels)
        name = self.task_config.target.column
        super().process_metrics(metrics, labels[name], model_outputs[name], **kwargs, **weights)

    def serving(self, model: tf_keras.Model) -> Serving:
        """Returns the signature `predict`, which takes columns by name, and descriptions."""
        from orbit_runner.tasks.tabular.serving import table_serving

        return table_serving(model, self.fitted)

    def predictor(
        self, signatures: Mapping[str, tf.types.experimental.Callable], *, top_k: int | None = None
    ) -> Predictor:
        """Returns the predictor for rows of tables, and for sentences if it sees only a text.

        Raises `RunnerError` if `top_k` is given, and the target is a number.
        """
        if self.task_config.target.type == REGRESSION:
            require_no_top_k(top_k)
        from orbit_runner.tasks.tabular.serving import RowPredictor

        return RowPredictor(signatures, self.task_config.train_data, top_k)

    def report_examples(
        self, model: tf_keras.Model, batches: Iterable[Tensors]
    ) -> ReportExamples | None:
        """Returns the predictions by class or error, and the worst rows."""
        return table_examples(self, model, batches)

    @property
    def fitted(self) -> Preprocessing:
        """The values fitted on the training rows, from the run directory if they are there."""
        fitted: Preprocessing = self.learned
        return fitted

    @property
    def vocabulary(self) -> TextFit | None:
        """The words of the text, to show batches; None if it is not the only feature."""
        fitted = self.fitted
        texts = [*fitted.texts.values()]
        others = [*fitted.numeric, *fitted.categorical, *fitted.dates]
        return texts[0] if len(texts) == 1 and not others else None

    @functools.cached_property
    def _fitted_config(self) -> TabularConfig:
        """The config with the features that were fitted, whichever columns the table has now."""
        config = self.task_config
        if config.features.names:
            return config
        lists = {
            "numeric": tuple(self.fitted.numeric),
            "categorical": tuple(self.fitted.categorical),
            "date": tuple(self.fitted.dates),
        }
        kinds = zip(lists.values(), (NUMBER, CATEGORY, DATE), strict=True)
        try:
            fitted = {name: kind for names, kind in kinds for name in names}
            if table_query(config).feature_kinds() == fitted:
                return config
        except DataError:
            pass  # The training data are not there, and not needed.
        return config.replace(features=config.features.replace(exclude=(), **lists))

    def part(self, params: TableDataConfig) -> TablePart:
        """Returns the rows of a section. Raises `SettingError` if they cannot be read."""
        section = section_of(params)
        with self.data_scope(section):
            return table_query(self._fitted_config).part(section)

    def arrays(self, params: TableDataConfig) -> ArraySource:
        """Returns the features and targets of a section as arrays, which are created once."""
        name = section_of(params)
        if name not in self._arrays:
            part = self.part(params)
            with self.data_scope(name):
                self._arrays[name] = make_arrays(self._fitted_config, part, self.fitted)
            if params.is_training:
                lines = unused_columns(table_query(self.task_config))
            else:
                new_categories = shorten(", ".join(self.fitted.new_categories(part)), 400)
                lines = (
                    [f"no training row has these categories: {new_categories}"]
                    if new_categories
                    else []
                )
            for line in lines:
                note(f"note: {line}")
        return self._arrays[name]

    @functools.cached_property
    def _arrays(self) -> dict[str, ArraySource]:
        return {}

    def chunks(self, params: TableDataConfig, replicas: int = 1) -> Chunks:
        """Returns the batches of a section by step.

        Those of training are `(features, targets)`, or `(features, targets, weight)` if rows have
        weights. Those of an evaluation are `(features, targets, counts)`, each row once; `counts`
        is a pair with the weights. The features and targets are those of `arrays`.
        """
        arrays = self.arrays(params)
        excluded = self.excluded_examples(params)
        mixture = self.mixture(params, arrays.origins)
        return INPUTS.chunks(arrays, params, replicas, excluded, mixture)

    def num_examples(self, params: TableDataConfig) -> int:
        """Returns the number of rows of a section that are used."""
        return self.part(params).size - len(self.excluded_examples(params))


def make_arrays(config: TabularConfig, part: TablePart, fitted: Preprocessing) -> ArraySource:
    """Returns the rows of a part as arrays.

    `features` has `numeric`, float32 [n, columns], `categorical`, int32 [n, columns], `dates`,
    int32 [n, 2 * columns], the days since 1970 and the seconds of the day of each column, and
    `tokens`, int32 [n, tokens], the tokens of the text columns side by side.
    `targets` has the target, int32 [n] or float32 [n], by its name, and `weight` is float32 [n], if
    there is a column for it. Raises `DataError` if a row has a class that training rows lack.
    """
    features: dict[str, np.ndarray] = {}
    for kind, names, dtype in (
        (NUMERIC, fitted.numeric, np.float32),
        (CATEGORICAL, fitted.categorical, np.int32),
    ):
        if names:
            features[kind] = np.empty((part.size, len(names)), dtype)
        for place, name in enumerate(names):
            column = part.column(name)
            values = column.values if kind == NUMERIC else fitted.codes(column)
            features[kind][:, place] = values
    if fitted.dates:
        dates = [_days_and_seconds(part.column(name)) for name in fitted.dates]
        features[DATES] = np.concatenate(dates, axis=1)
    if fitted.texts:
        parts = [fit.tokens(part.column(name)) for name, fit in fitted.texts.items()]
        features[TOKENS] = np.concatenate(parts, axis=1) if parts[1:] else parts[0]
    name = fitted.target_name
    if fitted.classes:
        target = class_numbers(part, name, fitted.classes)
    else:
        target = np.asarray(part.column(name).values)
    arrays: dict[str, np.ndarray | dict[str, np.ndarray]] = {
        INPUTS.features: features,
        INPUTS.labels: {name: target},
    }
    if config.weight_column:
        weight = np.asarray(part.column(config.weight_column).values)
        # The mean is 1, so that the loss and the learning rate do not depend on the unit.
        arrays[INPUTS.weights] = weight / weight.mean(dtype=np.float64).astype(np.float32)
    return ArraySource(part.name, arrays, files=part.files, origins=part.origins)


def _days_and_seconds(column: Column) -> np.ndarray:
    """Returns the days since 1970 and the seconds of the day, int32 [n, 2]."""
    days, seconds = np.divmod(column.values, DAY_SECONDS)
    missing = column.is_missing()
    days[missing] = MISSING_DAY
    seconds[missing] = 0
    return np.stack([days, seconds], axis=1).astype(np.int32)
