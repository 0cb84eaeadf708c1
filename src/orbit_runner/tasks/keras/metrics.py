"""Metrics of Keras, chosen by name in a config."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf
import tf_keras

from orbit_runner.errors import SettingError, first_line
from orbit_runner.tasks.keras.keras_3 import base_classes
from orbit_runner.tasks.keras.keras_names import (
    ALIAS,
    find_class,
    numbered_items,
    snake_case,
    split_item,
)
from orbit_runner.tasks.keras.outputs import CALL_ERRORS, match_labels, reason_of
from orbit_runner.tasks.keras.passed_objects import load_function
from orbit_runner.tasks.metrics import SparseAccuracy
from orbit_runner.tf_internals import keras_mask, rename_metric

if TYPE_CHECKING:
    from orbit_runner.tasks.metrics import TaskMetric

# They take class numbers as labels. All other metrics take labels of the shape of the outputs.
_CLASS_NUMBER_METRICS = (
    *("SparseCategoricalAccuracy", "SparseTopKCategoricalAccuracy"),
    *("SparseCategoricalCrossentropy", "SparseCategoricalHinge", "IoU", "MeanIoU", "Accuracy"),
)
_ACTIVATIONS = {"sparse": tf.nn.softmax, "categorical": tf.nn.softmax, "binary": tf.nn.sigmoid}
_Convert = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


class ConvertedMetric:
    """A metric of Keras that gets labels, outputs and weights in the form that it expects.

    Not a `Metric` itself: Keras would call `update_state` with AutoGraph a second time.
    """

    def __init__(
        self,
        metric: tf_keras.metrics.Metric,
        convert: _Convert,
        path: str,
        *,
        is_of_user: bool = False,
    ) -> None:
        self.name = metric.name
        self._metric = metric
        self._convert = convert
        self._path = path
        self._is_of_user = is_of_user

    def update_state(
        self, labels: tf.Tensor, outputs: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> None:
        """Adds a batch.

        As in Keras, the mask of the outputs, if they have one, is the weight of the values.
        `sample_weight` is float32 [batch], 0 for rows that are no examples; None if all are. Raises
        `SettingError` if the metric does not accept the labels and the outputs.
        """
        weights = self._weights(keras_mask(outputs), sample_weight, outputs)
        labels, outputs = self._convert(labels, outputs)
        try:
            self._metric.update_state(labels, outputs, sample_weight=weights)
        except CALL_ERRORS as error:
            raise SettingError(
                self._path,
                f"{self.name} does not accept labels {_shown(labels)} and outputs "
                f"{_shown(outputs)}: {reason_of(error)}",
                code="model-mismatch",
            ) from error

    def _weights(
        self, mask: tf.Tensor | None, counts: tf.Tensor | None, outputs: tf.Tensor
    ) -> tf.Tensor | None:
        """Returns the weights of the values of a batch; classes of the user get those of Keras."""
        if mask is not None and not self._is_of_user:
            mask = tf.cast(mask, tf.float32)
        if counts is None:
            return mask
        if mask is None:
            return counts[:, tf.newaxis] if self._is_of_user and outputs.shape.rank == 2 else counts
        for _ in range(mask.shape.rank - 1):
            counts = counts[..., tf.newaxis]
        return tf.cast(mask, tf.float32) * counts

    def result(self) -> tf.Tensor:
        """Returns the value of the metric."""
        return self._metric.result()

    def reset_state(self) -> None:
        """Resets the metric."""
        self._metric.reset_state()


def _shown(tensor: tf.Tensor) -> str:
    return f"{tensor.dtype.name} {['batch', *tensor.shape[1:]]}".replace("'", "")


def make_metrics(
    items: Sequence[str | Mapping[str, object]] | Mapping[int, str | Mapping[str, object]],
    *,
    kind: str,
    from_logits: bool,
    label_shape: Sequence[int],
    output_shape: Sequence[int | None],
    masked: bool = False,
    path: str = "task.metrics",
    prefix: str = "",
) -> list[TaskMetric]:
    """Returns the metrics of a config. Must be called in the strategy's scope.

    `items` are those at `path`, or some of them by index. Their names begin with `prefix`.

    `kind` is that of the loss: `sparse` for class numbers as labels, `categorical`, `binary` or "".
    The shapes are those of one example. `masked` tells whether the outputs have a mask. If the
    outputs are logits, the metrics of Keras get probabilities; classes of the user get what Keras
    would pass to them. Raises `SettingError` if a metric does not exist, does not fit, or if its
    result is not a single number.
    """
    factory = _MetricFactory(
        kind, from_logits, tuple(label_shape), tuple(output_shape), masked=masked, prefix=prefix
    )
    return [factory.make(item, f"{path}[{index}]") for index, item in numbered_items(items)]


class _MetricFactory:
    """Builds metrics for one kind of labels and outputs."""

    def __init__(
        self,
        kind: str,
        from_logits: bool,
        labels: tuple[int, ...],
        outputs: tuple[int | None, ...],
        *,
        masked: bool,
        prefix: str,
    ) -> None:
        self._prefix = prefix
        self._kind = kind
        self._from_logits = from_logits
        self._labels = labels
        self._outputs = outputs
        self._masked = masked

    def make(self, item: str | Mapping[str, object], path: str) -> ConvertedMetric | SparseAccuracy:
        name, arguments = split_item(item)
        shown = f"{self._prefix}{arguments.pop(ALIAS, '') or _plain_name(name)}"
        if ":" in name:
            user_metric = _build_user_metric(name, arguments, shown, path)
            converted = ConvertedMetric(user_metric, _match_as_keras, path, is_of_user=True)
            return _require_number(converted, path)
        if name in ("accuracy", "acc"):
            return self._accuracy(shown, path)
        cls = _keras_class(name, path)
        if cls.__name__ == "AUC" and arguments.get("multi_label"):
            arguments.setdefault("num_labels", self._outputs[-1])  # It creates its variables now.
        try:
            metric = cls(**arguments, name=shown)
            if not metric.built and type(metric).build is not tf_keras.layers.Layer.build:
                shape = tf.TensorShape([None, *self._outputs])
                metric.build(shape, shape)
        except (TypeError, ValueError) as error:
            raise SettingError(
                path, f"{name}: {first_line(error)}", code="model-mismatch"
            ) from error
        takes_classes = cls.__name__ in _CLASS_NUMBER_METRICS and getattr(
            metric, "sparse_y_true", True
        )
        self._check_sizes(metric, name, path, takes_classes=takes_classes)
        keeps_logits = bool(arguments.get("from_logits"))
        convert = self._conversion(takes_classes=takes_classes, keeps_logits=keeps_logits)
        return _require_number(ConvertedMetric(metric, convert, path), path)

    def _accuracy(self, name: str, path: str) -> ConvertedMetric | SparseAccuracy:
        """Returns the accuracy that Keras selects by the shapes of labels and outputs."""
        metrics = tf_keras.metrics
        labels = self._labels
        outputs = self._outputs
        if not outputs or outputs[-1] == 1:
            convert = self._conversion(takes_classes=False, keeps_logits=False)
            return ConvertedMetric(metrics.BinaryAccuracy(name=name), convert, path)
        if len(labels) < len(outputs) or labels[-1] == 1:
            if len(outputs) == 1 and not labels and not self._masked:
                return SparseAccuracy(name)
            return ConvertedMetric(
                metrics.SparseCategoricalAccuracy(name=name), lambda y, p: (y, p), path
            )
        return ConvertedMetric(metrics.CategoricalAccuracy(name=name), lambda y, p: (y, p), path)

    def _check_sizes(
        self, metric: tf_keras.metrics.Metric, name: str, path: str, *, takes_classes: bool
    ) -> None:
        """Raises `SettingError` if a metric would compare different numbers of values.

        They differ at the first batch, where Keras only says that two lists have other lengths.
        """
        width = self._outputs[-1] if self._outputs else 1
        if name.startswith("sparse_") and width == 1:
            raise SettingError(
                path,
                f"{name} needs one output per class, but the model has one output",
                code="model-mismatch",
            )
        if not hasattr(metric, "sparse_y_pred"):
            return  # It does not flatten what it compares.
        is_binary = isinstance(metric, tf_keras.metrics.BinaryIoU)
        if self._kind in ("sparse", "categorical") and metric.sparse_y_pred and not is_binary:
            raise SettingError(
                path,
                f"{name} compares class numbers, but the model returns one value per class\n"
                "set sparse_y_pred: false, and sparse_y_true: false if labels are one-hot",
                code="model-mismatch",
            )
        one_hot = self._kind == "sparse" and not takes_classes
        labels = self._outputs if one_hot else self._labels
        sizes = [
            _count(labels, flattens=metric.sparse_y_true),
            _count(self._outputs, flattens=metric.sparse_y_pred),
        ]
        if self._masked:
            sizes.append(_count(self._outputs, flattens=False))
        if None not in sizes and len({*sizes}) > 1:
            masks = f", {sizes[2]} in the mask" if self._masked else ""
            raise SettingError(
                path,
                f"{name} compares {sizes[0]} labels of an example with {sizes[1]} outputs{masks}\n"
                "set sparse_y_true: false if labels have one value per class, and sparse_y_pred: "
                "false if outputs have",
                code="model-mismatch",
            )

    def _conversion(self, *, takes_classes: bool, keeps_logits: bool) -> _Convert:
        activation = _ACTIVATIONS.get(self._kind) if self._from_logits else None
        one_hot = self._kind == "sparse" and not takes_classes

        def convert(labels: tf.Tensor, outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            outputs = tf.cast(outputs, tf.float32)
            if activation is not None and not keeps_logits:
                outputs = activation(outputs)
            if one_hot:
                if labels.shape.rank == outputs.shape.rank:
                    labels = tf.squeeze(labels, -1)
                labels = tf.one_hot(tf.cast(labels, tf.int32), outputs.shape[-1])
            elif self._kind != "sparse" and labels.shape.rank == outputs.shape.rank - 1:
                labels = tf.expand_dims(labels, -1)
            if not takes_classes:
                labels = tf.cast(labels, tf.float32)
            return labels, outputs

        return convert


def _count(shape: Sequence[int | None], *, flattens: bool) -> int | None:
    """Returns the number of values of an example, or of its class numbers; None if unknown."""
    sizes = shape if flattens else shape[:-1]
    return None if None in sizes else math.prod(size or 0 for size in sizes)


def _match_as_keras(labels: tf.Tensor, outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return match_labels(labels, outputs), outputs


def _plain_name(name: str) -> str:
    return snake_case(name.rpartition(":")[2])


def _keras_class(name: str, path: str) -> type[tf_keras.metrics.Metric]:
    reference = find_class("metrics", name)
    cls = getattr(tf_keras.metrics, (reference or "").partition(":")[2], None)
    if cls is None:
        raise SettingError(path, f"unknown metric {name!r}", code="unknown-name")
    return cls


def _build_user_metric(
    reference: str, arguments: Mapping[str, object], name: str, path: str
) -> tf_keras.metrics.Metric:
    loaded = load_function(reference, path)
    if not isinstance(loaded, type) or not issubclass(loaded, base_classes("metrics", "Metric")):
        raise SettingError(
            path, f"{reference} is not a subclass of keras.metrics.Metric", code="import-failed"
        )
    try:
        metric = loaded(**arguments)
    except TypeError as error:
        raise SettingError(
            path, f"{reference}: {first_line(error)}", code="model-mismatch"
        ) from error
    rename_metric(metric, name)
    return metric


def _require_number(metric: ConvertedMetric, path: str) -> ConvertedMetric:
    """Raises `SettingError` if the result of a metric is not a single number."""
    shape = tf.convert_to_tensor(metric.result()).shape
    if shape.rank:
        raise SettingError(
            path,
            f"{metric.name} returns {shape.as_list()} numbers, expected one\n"
            "set average: macro, micro or weighted if it has this argument",
            code="wrong-type",
        )
    return metric
