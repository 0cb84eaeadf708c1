"""Metrics of Keras for class numbers and logits, or for numbers, which a config lists.

Configs import this module, so it imports TensorFlow only to build and update a metric.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orbit_runner.config.errors import Problem, not_set
from orbit_runner.errors import SettingError
from orbit_runner.tasks.keras_items import Item, build_item, is_item, item_problems, split_item
from orbit_runner.utils.metrics import name_problem

if TYPE_CHECKING:
    import tensorflow as tf

    from orbit_runner.tasks.metrics import TaskMetric

# The metrics that labels of each type always have: the names of their classes in `tasks.metrics`.
STANDARD_METRICS: Mapping[str, Mapping[str, str]] = {
    "classification": {"accuracy": "SparseAccuracy"},
    "regression": {"mae": "AbsoluteError", "rmse": "RootSquaredError"},
}
# They take class numbers as labels. All other metrics take labels of the shape of the outputs.
_TAKE_CLASSES = ("Sparse", "IoU", "MeanIoU")  # The beginnings of their names.
_ACCURACY = ("accuracy", "acc")


def standard_metrics(kind: str) -> list[TaskMetric]:
    """Returns the metrics of a type of labels. Must be called in the strategy's scope."""
    from orbit_runner.tasks import metrics

    classes = STANDARD_METRICS[kind].items()
    return [getattr(metrics, class_name)(name) for name, class_name in classes]


def metric_problems(items: Sequence[Item], taken: Iterable[str] = ()) -> Iterator[Problem]:
    """Yields metrics of another form, or with the name of another one or of `taken`."""
    names = {"loss", *taken}
    for index, item in enumerate(items):
        path = f"metrics[{index}]"
        if not is_item(item):
            yield not_set(path, "has no class_name; write {class_name: NAME, config: {…}}")
            continue
        if problems := [*item_problems(item, path)]:
            yield from problems
            continue
        name = _shown_name(item)
        problem = name_problem(name)
        if name in names:
            problem = f"another metric is also named {name!r}"
        if problem:
            example = f"{{class_name: {split_item(item)[0]}, config: {{name: other_name, …}}}}"
            yield Problem(path, f"{problem}\nset a name: {example}", code="set-twice")
        names.add(name)


@dataclasses.dataclass(eq=False)
class ClassMetric:
    """A metric of Keras that gets labels, outputs and weights in the form that it expects.

    Not a `Metric` itself: Keras would call `update_state` with AutoGraph a second time.
    """

    name: str
    path: str
    metric: Any
    num_classes: int | None
    is_of_user: bool
    takes_classes: bool
    takes_logits: bool

    def update_state(
        self, labels: tf.Tensor, outputs: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> None:
        """Adds a batch: class numbers [batch] and logits [batch, classes], or numbers [batch].

        `sample_weight` is float32 [batch]; all 1 if None. Raises `SettingError` if the metric does
        not accept the labels and the outputs.
        """
        labels, outputs = self._converted(labels, outputs)
        if sample_weight is not None and self.is_of_user:
            sample_weight = sample_weight[:, None]
        try:
            self.metric.update_state(labels, outputs, sample_weight=sample_weight)
        except Exception as error:  # The code of the user may raise any error.
            from orbit_runner.tasks.keras.outputs import reason_of

            message = (
                f"{self.name} does not accept labels {labels.dtype.name} {labels.shape} and "
                f"outputs {outputs.dtype.name} {outputs.shape}: {reason_of(error)}"
            )
            raise SettingError(self.path, message, code="model-mismatch") from error

    def _converted(self, labels: tf.Tensor, outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        import tensorflow as tf

        if self.num_classes is None:
            return labels[:, None], outputs[:, None]
        if self.is_of_user:
            return labels[:, None], outputs  # As in Keras.
        if not self.takes_logits:
            outputs = tf.nn.softmax(tf.cast(outputs, tf.float32))
        return labels if self.takes_classes else tf.one_hot(labels, self.num_classes), outputs

    def result(self) -> tf.Tensor:
        """Returns the value of the metric."""
        return self.metric.result()

    def reset_state(self) -> None:
        """Resets the metric."""
        self.metric.reset_state()


def make_metric(item: Item, num_classes: int | None, path: str) -> ClassMetric:
    """Returns the metric of the setting `path`. Must be called in the strategy's scope.

    Metrics of Keras get probabilities, and one-hot labels unless they take class numbers. Classes
    of the user get what Keras would pass to them. `num_classes` is None for numbers. Raises
    `SettingError` if the metric does not exist or fit, or if its result is not one number.
    """
    import tensorflow as tf
    import tf_keras

    name, arguments = split_item(item)
    config = None if arguments is None and ":" in name else dict(arguments or {})
    class_name = name if ":" in name else _class_name(name, num_classes)
    if class_name == "AUC" and config and config.get("multi_label"):
        config.setdefault("num_labels", num_classes or 1)  # It creates its variables now.
    described = class_name if config is None else {"class_name": class_name, "config": config}
    metric = build_item(described, "metrics", tf_keras, path)
    if not hasattr(metric, "update_state"):
        message = f"{name} is not a subclass of keras.metrics.Metric"
        raise SettingError(path, message, code="import-failed")
    if name.lower().startswith("sparse") and (num_classes or 1) == 1:
        message = f"{name} needs one output per class, but the model has one output"
        raise SettingError(path, message, code="model-mismatch")
    if ":" not in name and type(metric).build is not tf_keras.layers.Layer.build:
        metric.build((None, num_classes or 1), (None, num_classes or 1))
    shown_name = _shown_name(item)
    if shape := tf.convert_to_tensor(metric.result()).shape.as_list():
        message = (
            f"{shown_name} returns {shape} numbers, expected one\n"
            "set config: {average: macro}, or micro or weighted, if it has this argument"
        )
        raise SettingError(path, message, code="wrong-type")
    takes_classes = class_name.startswith(_TAKE_CLASSES) and getattr(metric, "sparse_y_true", True)
    takes_logits = name.lower() in _ACCURACY or bool((config or {}).get("from_logits"))
    return ClassMetric(
        shown_name, path, metric, num_classes, ":" in name, takes_classes, takes_logits
    )


def _class_name(name: str, num_classes: int | None) -> str:
    """Returns the class of a name such as `mse` or `f1_score`; unknown names remain."""
    from tf_keras import metrics

    if name.lower() in _ACCURACY:
        return "BinaryAccuracy" if num_classes is None else "SparseCategoricalAccuracy"
    function = getattr(metrics, name.lower(), None)
    plain = getattr(function, "__name__", name).lower().replace("_", "")
    classes = {key.lower(): key for key, value in vars(metrics).items() if isinstance(value, type)}
    return classes.get(plain, name)


def _shown_name(item: Item) -> str:
    """Returns the name that the config sets, or that of the class: `AUC` is `auc`."""
    name, config = split_item(item)
    plain = name.rpartition(":")[2].replace("IoU", "Iou").replace("FBeta", "Fbeta")
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", plain)
    return str((config or {}).get("name") or words.lower())
