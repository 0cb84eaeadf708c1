"""Classification of texts: the cross entropy of the logits of any registered network."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf
import tf_keras

from orbit_runner.data.source import ArraySource
from orbit_runner.errors import shorten
from orbit_runner.registry import TEXT_CLASSIFIERS
from orbit_runner.tasks.class_metrics import make_metric
from orbit_runner.tasks.imbalance.weighted_labels import training_labels
from orbit_runner.tasks.metrics import SparseAccuracy
from orbit_runner.tasks.mistakes import find_mistakes
from orbit_runner.tasks.report_examples import ReportExamples
from orbit_runner.tasks.serving import Predictor, Serving
from orbit_runner.tasks.table_task import TableTask
from orbit_runner.tasks.tabular.config import TabularConfig
from orbit_runner.tasks.tabular.data_config import TableDataConfig
from orbit_runner.tasks.tabular.networks import TOKENS
from orbit_runner.tasks.tabular.texts import TextFit
from orbit_runner.tasks.text_classification.config import (
    TextClassificationConfig,
)

if TYPE_CHECKING:
    from orbit_runner.tasks.metrics import TaskMetric
    from orbit_runner.utils.types import Tensors

_MISTAKES = 24
_MAX_TEXT_WIDTH = 400


class TextClassificationTask(TableTask):
    """Classification of texts with one label per text."""

    task_config: TextClassificationConfig

    def build_model(self) -> tf_keras.Model:
        """Builds the network `model.name`, and writes the fitted values to the run directory.

        It maps tokens, int32 [batch, text.max_length], to logits, float32 [batch, classes].
        """
        options = self.task_config.model.as_dict()
        return TEXT_CLASSIFIERS.get(options.pop("name")).load()(
            vocab_size=self.vocabulary.size,
            length=self.vocabulary.max_length,
            num_classes=len(self.class_names),
            **options,
        )

    def split_counts(self, inputs: Tensors) -> tuple[Tensors, tf.Tensor]:
        """Returns tokens and labels, and which of the rows are texts, float32 [batch]."""
        tokens, labels, counts = inputs
        return (tokens, labels), counts

    def train_step(
        self,
        inputs: Tensors,
        model: tf_keras.Model,
        optimizer: tf_keras.optimizers.Optimizer | tf_keras.optimizers.legacy.Optimizer,
        metrics: Sequence[TaskMetric] | None = None,
    ) -> dict[str, tf.Tensor]:
        """Trains on one batch on one replica; returns `loss`, a float32 scalar."""
        features, labels = inputs
        targets = training_labels(labels, None, self.loss_by_class)
        return super().train_step((features, targets), model, optimizer, metrics)

    def example_losses(self, labels: tf.Tensor, model_outputs: tf.Tensor) -> tf.Tensor:
        """Returns the cross entropy of each text in nats, float32 [batch].

        Labels are int32 [batch], and `model_outputs` are logits, float32 [batch, classes].
        """
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model_outputs)

    def build_metrics(self, training: bool = True) -> list[TaskMetric]:
        """Returns the accuracy, and in evaluation the metrics of the config."""
        metrics: list[TaskMetric] = [SparseAccuracy("accuracy")]
        for index, item in enumerate(() if training else self.task_config.metrics):
            metrics.append(make_metric(item, len(self.class_names), f"task.metrics[{index}]"))
        return metrics

    def serving(self, model: tf_keras.Model) -> Serving:
        """Returns the signature `text`, which takes texts, and that of the class names."""
        from orbit_runner.tasks.text_classification.serving import text_serving

        return text_serving(model, self.vocabulary, self.class_names)

    def predictor(
        self, signatures: Mapping[str, tf.types.experimental.Callable], *, top_k: int | None = None
    ) -> Predictor:
        """Returns the predictor that labels texts."""
        from orbit_runner.tasks.text_classification.predictor import TextPredictor

        config = self.task_config
        return TextPredictor(signatures, config.text.column, config.train_data, top_k)

    def report_examples(self, model: tf_keras.Model, batches: Iterable[Tensors]) -> ReportExamples:
        """Returns the confusion matrix, and the texts of the worst mistakes."""
        part = self.table.part(self.task_config.validation_data)
        texts = part.column(self.task_config.text.column)
        mistakes = find_mistakes(model, batches, max_mistakes=_MISTAKES)
        return ReportExamples(
            note=mistakes.note(part.size),
            confusion=mistakes.confusion,
            classes=self.class_names,
            calibration=mistakes.calibration,
            head=("label", "prediction", "probability", "place", "text"),
            rows=[
                (
                    *mistake.classes(self.class_names),
                    f"{mistake.probability:.2f}",
                    part.row_location(mistake.number),
                    shorten(texts.text(mistake.number), _MAX_TEXT_WIDTH),
                )
                for mistake in mistakes.worst
            ],
        )

    @property
    def table_config(self) -> TabularConfig:
        """The config as that of a table, with one text feature and one target."""
        config: TabularConfig = self.task_config.to_tabular_config()
        return config

    @property
    def vocabulary(self) -> TextFit:
        """The tokens that were fitted on the training texts."""
        return self.table.fitted.texts[self.task_config.text.column]

    @property
    def class_names(self) -> Sequence[str]:
        """The classes of the training texts."""
        return self.table.fitted.classes[self.task_config.label_column]

    def arrays(self, params: TableDataConfig) -> ArraySource:
        """Returns tokens and labels of a section as arrays, which are created once."""
        name = "train" if params.is_training else "validation"
        if name not in self._arrays:
            source = self.table.arrays(params)
            features = source.arrays["features"]
            targets = source.arrays["targets"]
            arrays = {
                "features": features[TOKENS],
                "targets": targets[self.task_config.label_column],
            }
            self._arrays[name] = dataclasses.replace(source, arrays=arrays)
        return self._arrays[name]

    @functools.cached_property
    def _arrays(self) -> dict[str, ArraySource]:
        return {}
