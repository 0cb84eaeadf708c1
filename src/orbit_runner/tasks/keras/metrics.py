"""Metrics of Keras, chosen by name in a config."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from orbit_runner.errors import SettingError, first_line
from orbit_runner.tasks.keras.keras_names import ALIAS, find_class, snake_case, split_item
from orbit_runner.tasks.keras.passed_objects import load_function
from orbit_runner.tasks.metrics import SparseAccuracy

# They take class numbers as labels. All other metrics take labels of the shape of the outputs.
_CLASS_NUMBER_METRICS = (
    *("SparseCategoricalAccuracy", "SparseTopKCategoricalAccuracy"),
    *("SparseCategoricalCrossentropy", "SparseCategoricalHinge", "IoU", "MeanIoU", "Accuracy"),
)
_ACTIVATIONS = {"sparse": tf.nn.softmax, "categorical": tf.nn.softmax, "binary": tf.nn.sigmoid}


class ConvertedMetric:
    """A metric of Keras that gets labels and outputs in the form that it expects.

    Not a `Metric` itself: Keras would call `update_state` with AutoGraph a second time.
    """

    def __init__(
        self,
        metric: tf_keras.metrics.Metric,
        convert: Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
    ) -> None:
        self.name = metric.name
        self._metric, self._convert = metric, convert

    def update_state(
        self, labels: tf.Tensor, outputs: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> None:
        """Adds a batch; `sample_weight` is float32 [batch], all 1 if None."""
        labels, outputs = self._convert(labels, outputs)
        self._metric.update_state(labels, outputs, sample_weight=sample_weight)

    def result(self) -> Any:
        """Returns the value of the metric."""
        return self._metric.result()

    def reset_state(self) -> None:
        """Resets the metric."""
        self._metric.reset_state()


def make_metrics(
    items: Sequence[str | Mapping[str, Any]],
    *,
    kind: str,
    from_logits: bool,
    label_shape: Sequence[int],
    output_shape: Sequence[int | None],
    path: str = "task.metrics",
) -> list[Any]:
    """Returns the metrics of a config. Must be called in the strategy's scope.

    `kind` is that of the loss: `sparse` for class numbers as labels, `categorical`, `binary` or "".
    The shapes are those of one example. If the outputs are logits, the metrics of Keras get
    probabilities; classes of the user get the labels and outputs as they are. Raises `SettingError`
    if a metric does not exist or its result is not a single number.
    """
    factory = _MetricFactory(kind, from_logits, tuple(label_shape), tuple(output_shape))
    return [factory.make(item, f"{path}[{index}]") for index, item in enumerate(items)]


class _MetricFactory:
    """Builds metrics for one kind of labels and outputs."""

    def __init__(
        self,
        kind: str,
        from_logits: bool,
        labels: tuple[int, ...],
        outputs: tuple[int | None, ...],
    ) -> None:
        self._kind, self._from_logits = kind, from_logits
        self._labels, self._outputs = labels, outputs

    def make(self, item: str | Mapping[str, Any], path: str) -> Any:
        name, arguments = split_item(item)
        shown = str(arguments.pop(ALIAS, "") or _plain_name(name))
        if ":" in name:
            user_metric = _build_user_metric(name, arguments, shown, path)
            return _require_number(ConvertedMetric(user_metric, lambda y, p: (y, p)), path)
        if name in ("accuracy", "acc"):
            return self._accuracy(shown)
        cls = _keras_class(name, path)
        if cls.__name__ == "AUC" and arguments.get("multi_label"):
            arguments.setdefault("num_labels", self._outputs[-1])  # It creates its variables now.
        try:
            metric = cls(**arguments, name=shown)
        except (TypeError, ValueError) as error:
            raise SettingError(path, f"{name}: {first_line(error)}") from error
        if not metric.built and type(metric).build is not tf_keras.layers.Layer.build:
            shape = [None, *self._outputs]
            metric.build(tf.TensorShape(shape), tf.TensorShape(shape))
        takes_classes = cls.__name__ in _CLASS_NUMBER_METRICS
        keeps_logits = bool(arguments.get("from_logits"))
        converted = ConvertedMetric(metric, self._conversion(takes_classes, keeps_logits))
        return _require_number(converted, path)

    def _accuracy(self, name: str) -> Any:
        """Returns the accuracy that fits labels and outputs, as Keras does for this name."""
        metrics = tf_keras.metrics
        if self._kind == "sparse":
            if len(self._outputs) == 1 and not self._labels:
                return SparseAccuracy(name)
            return ConvertedMetric(
                metrics.SparseCategoricalAccuracy(name=name), lambda y, p: (y, p)
            )
        if self._outputs and self._outputs[-1] != 1 and self._kind != "binary":
            return ConvertedMetric(metrics.CategoricalAccuracy(name=name), lambda y, p: (y, p))
        return ConvertedMetric(metrics.BinaryAccuracy(name=name), self._conversion(False, False))

    def _conversion(
        self, takes_classes: bool, keeps_logits: bool
    ) -> Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
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
            return labels, outputs

        return convert


def _plain_name(name: str) -> str:
    return snake_case(name.rpartition(":")[2])


def _keras_class(name: str, path: str) -> Any:
    reference = find_class("metrics", name)
    cls = getattr(tf_keras.metrics, (reference or "").partition(":")[2], None)
    if cls is None:
        raise SettingError(path, f"unknown metric {name!r}")
    return cls


def _build_user_metric(reference: str, arguments: dict[str, Any], name: str, path: str) -> Any:
    found: Any = load_function(reference, path)
    if not isinstance(found, type) or not issubclass(found, tf_keras.metrics.Metric):
        raise SettingError(path, f"{reference} is not a subclass of tf_keras.metrics.Metric")
    try:
        metric = found(**arguments)
    except TypeError as error:
        raise SettingError(path, f"{reference}: {first_line(error)}") from error
    metric._name = name
    return metric


def _require_number(metric: ConvertedMetric, path: str) -> ConvertedMetric:
    """Raises `SettingError` if the result of a metric is not a single number."""
    shape = tf.convert_to_tensor(metric.result()).shape
    if shape.rank:
        raise SettingError(
            path,
            f"{metric.name} returns {shape.as_list()} numbers, expected one\n"
            "set average: macro, micro or weighted if it has this argument",
        )
    return metric
