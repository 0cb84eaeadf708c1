"""Compares an exported network with its model on validation examples."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from orbit_runner.errors import RunnerError
from orbit_runner.serving.formats.base import NetworkFormat
from orbit_runner.serving.network import NumpyFunction, describe_network
from orbit_runner.tasks.base import EXAMPLES, drop_padding
from orbit_runner.tf_internals import keras_mask, set_keras_mask
from orbit_runner.train.evaluator import value_of
from orbit_runner.train.inputs.distribute import leading_size

if TYPE_CHECKING:
    import tf_keras
    from official.core import base_task

    from orbit_runner.config.schema.trainer import TrainerConfig
    from orbit_runner.utils.types import Tensors

_DEFAULT_METRIC = "accuracy"


@dataclasses.dataclass(frozen=True)
class Metric:
    """The metric that may decide about an export, and whether higher values are better."""

    name: str
    is_higher_better: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportCheck:
    """What a comparison found.

    Attributes:
        examples: The number of examples.
        difference: The largest difference of an output.
        relative: The same in units of the largest output of the model.
        model_metrics: The metrics of the model by name.
        metrics: Those of the export.
    """

    examples: int
    difference: float
    relative: float
    model_metrics: Mapping[str, float]
    metrics: Mapping[str, float]

    def degradation_of(self, metric: Metric) -> float:
        """Returns by how much the export is worse, in units of the metric if that is above 1."""
        before, after = self.model_metrics[metric.name], self.metrics[metric.name]
        decrease = before - after if metric.is_higher_better else after - before
        return decrease / max(1.0, abs(before))


class Examples:
    """Batches to compare exports with, and the metrics of the model on them."""

    def __init__(
        self, task: base_task.Task, model: tf_keras.Model, batches: Iterable[Tensors]
    ) -> None:
        self._task = task
        self._model = model
        self._batches = list(batches)
        if not self._batches:
            raise RunnerError(
                "task.validation_data contains no examples to check the export with",
                code="empty-data",
            )
        calls: list[tuple[Tensors, Tensors]] = []
        self.metrics, self.count = self._evaluate(_RecordingModel(model, calls))
        features, outputs = calls[0]
        self.network = describe_network(model, features, outputs)

    def check(self, run: NumpyFunction) -> ExportCheck:
        """Returns how an export differs from the model. `run` is the function of the export."""
        answers = _ComparingModel(self._model, run)
        metrics, _ = self._evaluate(answers)
        return ExportCheck(
            examples=self.count,
            difference=answers.difference,
            relative=answers.difference / max(answers.largest, 1e-30),
            model_metrics=self.metrics,
            metrics=metrics,
        )

    def metric_of(self, trainer: TrainerConfig) -> Metric | None:
        """Returns the metric of the best checkpoint, or the accuracy; None if there is neither."""
        name = trainer.best_checkpoint_eval_metric
        if name in self.metrics:
            return Metric(name, trainer.best_checkpoint_metric_comp == "higher")
        return Metric(_DEFAULT_METRIC) if _DEFAULT_METRIC in self.metrics else None

    def _evaluate(self, model: _RecordingModel | _ComparingModel) -> tuple[dict[str, float], int]:
        """Returns the metrics of a model, and the number of examples."""
        metrics = self._task.build_metrics(training=False)
        count = 0.0
        for batch in self._batches:
            # Tasks of Model Garden may modify their inputs.
            copy = tf.nest.map_structure(lambda tensor: tensor, batch)
            copy, rows = drop_padding(self._task, copy)
            if rows is not None and int(rows) == 0:
                continue
            logs = self._task.validation_step(copy, model, metrics)
            count += float(logs.get(EXAMPLES, leading_size(batch)))
        values = {metric.name: value_of(metric) for metric in metrics}
        return {n: float(v) for n, v in values.items() if np.ndim(v) == 0}, int(count)


class _RecordingModel:
    """Wraps the model for a validation step, and records the first call."""

    def __init__(self, model: tf_keras.Model, calls: list[tuple[Tensors, Tensors]]) -> None:
        self._model = model
        self._calls = calls

    def __call__(self, features: Tensors, training: bool = False) -> Tensors:
        outputs = self._model(features, training=training)
        if not self._calls:
            self._calls.append((features, outputs))
        return outputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class _ComparingModel:
    """Returns the outputs of an export in place of those of the model, and compares them."""

    def __init__(self, model: tf_keras.Model, run: NumpyFunction) -> None:
        self._model = model
        self._run = run
        self.difference = 0.0
        self.largest = 0.0

    def __call__(self, features: Tensors, training: bool = False) -> Tensors:
        expected = self._model(features, training=training)
        values = [value.numpy() for value in tf.nest.flatten(features)]
        outputs = []
        for output, answer in zip(tf.nest.flatten(expected), self._run(values), strict=True):
            reference = tf.cast(output, tf.float32).numpy()
            apart = np.abs(reference - answer.astype(np.float32).reshape(reference.shape))
            # Unlike `max`, this propagates NaN.
            self.difference = float(np.maximum(self.difference, np.max(apart, initial=0.0)))
            self.largest = max(self.largest, float(np.max(np.abs(reference), initial=0.0)))
            tensor = tf.cast(answer.reshape(reference.shape), output.dtype)
            if keras_mask(output) is not None:
                # The metrics leave out what the mask excludes.
                set_keras_mask(tensor, keras_mask(output))
            outputs.append(tensor)
        return tf.nest.pack_sequence_as(expected, outputs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def tolerance_of(kind: NetworkFormat, metric: Metric | None) -> float:
    """Returns the default tolerance of a format."""
    if kind.metric_tolerance is None or metric is None:
        return kind.tolerance
    return kind.metric_tolerance


def require_close(
    kind: NetworkFormat, check: ExportCheck, metric: Metric | None, tolerance: float
) -> None:
    """Raises `RunnerError` if an export differs from its model by more than the tolerance.

    Some formats are judged by the degradation of the metric, if there is one; others by their
    outputs.
    """
    if kind.metric_tolerance is not None and metric is not None:
        before, after = check.model_metrics[metric.name], check.metrics[metric.name]
        value = check.degradation_of(metric)
        reason = f"{metric.name} is {after:.4f} instead of {before:.4f}"
    else:
        value = check.relative
        reason = (
            f"an output differs by {check.difference:.3g}, which is {check.relative:.3g} of the "
            "largest one"
        )
    if not value <= tolerance:
        raise RunnerError(
            f"{kind.name}: {reason}, on {check.examples:,} validation examples\n"
            f"the tolerance is {tolerance:g}; --tolerance sets another one"
            if np.isfinite(value)
            else f"{kind.name}: an output is not a number",
            code="export-mismatch",
        )
