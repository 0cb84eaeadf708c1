"""The loss and the metrics of a model, which may have several outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.errors import SettingError, nearest_name_hint
from orbit_runner.tasks.keras.by_output import (
    MetricsSetting,
    losses_by_output,
    metrics_by_output,
    weights_by_output,
)
from orbit_runner.tasks.keras.losses import ExampleLoss, make_loss
from orbit_runner.tasks.keras.metrics import ConvertedMetric, make_metrics
from orbit_runner.tasks.keras.outputs import Outputs, outputs_by_name
from orbit_runner.tasks.keras.trained_arrays import Labels
from orbit_runner.tasks.metrics import Ratio
from orbit_runner.utils.log import note

if TYPE_CHECKING:
    from orbit_runner.tasks.keras.config import KerasConfig
    from orbit_runner.tasks.metrics import TaskMetric
    from orbit_runner.utils.types import Tensors

# Names of records that are not metrics of an output.
_RESERVED = ("loss", "training_loss", "validation_loss")


@dataclasses.dataclass(frozen=True)
class Target:
    """An output of a model that has labels, with its loss.

    Attributes:
        name: The name of the output; "" if the model returns a single tensor.
        label: The name of its labels; "" if there is one array of labels.
        labels: The description of its labels.
        outputs: The description of the output.
        loss: The loss.
        weight: The factor of the loss in the sum.
    """

    name: str
    label: str
    labels: Labels
    outputs: Outputs
    loss: ExampleLoss
    weight: float = 1.0


class Objective:
    """What a model is trained for: the weighted sum of the losses of its outputs.

    Attributes:
        names: The names of all outputs of the model; empty if it returns a single tensor.
        targets: The outputs that have a loss.
    """

    def __init__(
        self, names: Sequence[str], targets: Sequence[Target], metrics: MetricsSetting
    ) -> None:
        self.names = names
        self.targets = targets
        self._metrics = metrics

    @property
    def kinds(self) -> dict[str, tuple[str, bool]]:
        """The kind of the loss of each output, and whether the output is logits, by name."""
        losses = {target.name: target.loss for target in self.targets}
        return {
            name: (losses[name].kind, losses[name].from_logits) if name in losses else ("", False)
            for name in self.names or [""]
        }

    def __call__(
        self, labels: Tensors, outputs: Tensors, counts: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Returns what each example adds to the loss of the batch; see `ExampleLoss`."""
        total: tf.Tensor | None = None
        for target in self.targets:
            losses = self.losses_of(target, labels, outputs, counts)
            if target.weight != 1.0:
                losses = losses * target.weight
            total = losses if total is None else total + losses
        return total

    def losses_of(
        self, target: Target, labels: Tensors, outputs: Tensors, counts: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Returns what each example adds to the loss of one output, without its weight."""
        return target.loss(*self.select(target, labels, outputs), counts)

    def select(
        self, target: Target, labels: Tensors, outputs: Tensors
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the labels and the output of a target."""
        label = labels[target.label] if target.label else labels
        return label, outputs_by_name(outputs, self.names)[target.name] if self.names else outputs

    def build_metrics(self) -> list[TaskMetric]:
        """Returns the metrics of the config. Must be called in the strategy's scope.

        If the model has several outputs, those of an output begin with its name, and its loss is
        one of them. Raises `SettingError` if a metric does not fit.
        """
        metrics = metrics_by_output(self._metrics)
        metrics.check(self.names)
        built: list[TaskMetric] = []
        for target in self.targets:
            if self.names:
                built.append(OutputLoss(f"{target.name}_loss", self, target))
            number = self.names.index(target.name) if self.names else 0
            own = make_metrics(
                metrics.get(target.name, number) or (),
                kind=target.loss.kind,
                from_logits=target.loss.from_logits,
                label_shape=target.labels.shape,
                output_shape=target.outputs.shape,
                masked=target.outputs.masked,
                path=metrics.path(target.name or None),
                prefix=f"{target.name}_" if self.names else "",
            )
            built += (OutputMetric(metric, self, target) for metric in own) if self.names else own
        for metric in built if self.names else ():
            same = [other for other in built if other.name == metric.name]
            if metric.name in _RESERVED or len(same) > 1:
                raise SettingError(
                    "task.metrics",
                    f"the name {metric.name!r} is taken\nrename the output of the model, or set "
                    "{name: …, as: other_name}",
                    code="set-twice",
                )
        return built


class OutputLoss(Ratio):
    """The loss of one output, without its weight in the sum."""

    def __init__(self, name: str, objective: Objective, target: Target) -> None:
        super().__init__(name)
        self._objective = objective
        self._target = target

    @tf.autograph.experimental.do_not_convert
    def update_state(
        self,
        labels: Tensors,
        outputs: Tensors,
        sample_weight: tf.Tensor | None = None,
        loss_weight: tf.Tensor | None = None,
    ) -> None:
        """Adds a batch.

        Args:
            labels: The labels of all outputs.
            outputs: The outputs.
            sample_weight: float32 [batch], 0 for rows that are no examples; None if all are.
            loss_weight: float32 [batch], the weight of each example in the loss; None for 1.
        """
        losses = self._objective.losses_of(self._target, labels, outputs, sample_weight)
        number = tf.cast(tf.shape(losses)[0], tf.float32)
        if loss_weight is not None:
            losses *= loss_weight
        if sample_weight is not None:
            losses *= sample_weight
            number = tf.reduce_sum(sample_weight)
        self.add(tf.reduce_sum(losses), number)


class OutputMetric:
    """A metric of one output, which gets the labels and the outputs of all."""

    def __init__(self, metric: TaskMetric, objective: Objective, target: Target) -> None:
        self.name = metric.name
        self._metric = metric
        self._objective = objective
        self._target = target

    def update_state(
        self, labels: Tensors, outputs: Tensors, sample_weight: tf.Tensor | None = None
    ) -> None:
        """Adds a batch. `sample_weight` is 0 for rows that are no examples; None if all are."""
        selected = self._objective.select(self._target, labels, outputs)
        self._metric.update_state(*selected, sample_weight=sample_weight)

    def result(self) -> tf.Tensor:
        """Returns the value of the metric."""
        return self._metric.result()

    def reset_state(self) -> None:
        """Resets the metric."""
        self._metric.reset_state()


def built_metrics(metrics: Iterable[TaskMetric]) -> list[TaskMetric]:
    """Returns the metrics that `Objective.build_metrics` built.

    The others are those of the model, of `add_metric`, which it updates itself when it is called.
    """
    return [
        metric for metric in metrics if isinstance(metric, (Ratio, ConvertedMetric, OutputMetric))
    ]


def make_objective(
    config: KerasConfig,
    labels: Labels | Mapping[str, Labels],
    outputs: Outputs | Mapping[str, Outputs],
) -> Objective:
    """Returns the objective of a config.

    Raises `SettingError` if labels, outputs and losses do not fit together.
    """
    names = list(outputs) if isinstance(outputs, Mapping) else []
    losses = losses_by_output(config.loss)
    weights = weights_by_output(config.loss_weights)
    losses.check(names)
    weights.check(names or [""])
    if isinstance(outputs, Outputs):
        label = _only_label(labels)
        own = labels[label] if isinstance(labels, Mapping) else labels
        loss = make_loss(losses.get("", 0) or "", own, outputs)
        factor = float(weights.values.get(0, 1.0))
        return Objective((), [Target("", label, own, outputs, loss, factor)], config.metrics)
    targets = []
    for number, (name, named_label) in enumerate(_labels_of_outputs(labels, names).items()):
        item = losses.get(name, number)
        is_off = item is None and losses.key_of(name, number) in losses.values
        if is_off or named_label is None:
            continue
        own = labels[named_label] if isinstance(labels, Mapping) else labels
        loss = make_loss(item or "", own, outputs[name], losses.path(name))
        weight = weights.get(name, number)
        factor = 1.0 if weight is None else float(weight)
        targets.append(Target(name, named_label, own, outputs[name], loss, factor))
    trained = [target.name for target in targets]
    if not trained:
        raise SettingError("task.loss", f"no output has a loss: {', '.join(names)}", code="not-set")
    others = [name for name in names if name not in trained]
    if others:
        note(f"note: outputs without labels or without a loss: {', '.join(others)}")
    return Objective(names, targets, config.metrics)


def _only_label(labels: Labels | Mapping[str, Labels]) -> str:
    """Returns the name of the labels of a model that returns a single tensor."""
    if isinstance(labels, Labels):
        return ""
    if len(labels) > 1:
        raise SettingError(
            "task.model",
            f"the data has labels for several outputs, {', '.join(labels)}, but the model returns "
            "a single tensor\nreturn a list or a dict of tensors, or one array of labels",
            code="model-mismatch",
        )
    return next(iter(labels))


def _labels_of_outputs(
    labels: Labels | Mapping[str, Labels], names: Sequence[str]
) -> dict[str, str | None]:
    """Returns the name of the labels of each output; None if it has no labels.

    One array of labels is that of all outputs.
    """
    if isinstance(labels, Labels):
        return dict.fromkeys(names, "")
    keys = list(labels)
    if keys == [str(number) for number in range(len(keys))] and not set(keys) & set(names):
        if len(keys) != len(names):
            raise SettingError(
                "task.model",
                f"the data has a list of {len(keys)} arrays of labels, but the model has "
                f"{len(names)} outputs: {', '.join(names)}",
                code="model-mismatch",
            )
        return dict(zip(names, keys, strict=True))
    for key in keys:
        if key not in names:
            raise SettingError(
                "task.model",
                f"the data has labels {key!r}, but the model has no such output"
                f"{nearest_name_hint(key, names)}\nallowed: {', '.join(names)}, or a list of "
                "arrays in this order",
                code="not-allowed",
            )
    return {name: name if name in keys else None for name in names}
