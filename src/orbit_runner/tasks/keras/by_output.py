"""Settings that have one value for all outputs of a model, or one for each.

As in `compile` of Keras, the values for several outputs are a mapping by their names, or a list in
their order. Imports no TensorFlow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from orbit_runner.config.errors import Problem
from orbit_runner.config.schema.base import FLOAT_MAX, is_finite_number
from orbit_runner.errors import SettingError, format_count, nearest_name_hint, shorten
from orbit_runner.tasks.keras.keras_names import (
    NAME,
    Item,
    item_problems,
    metric_problems,
    split_item,
)

_T = TypeVar("_T")
Key = str | int | None  # The name or the number of an output; None for all outputs.
LossSetting = Item | Sequence[Item | None] | Mapping[str, Item | None]
MetricsSetting = Sequence[Item | Sequence[Item]] | Mapping[str, Item | Sequence[Item]]
_LOSS = "expected a name, or a name with arguments: {name: …, ARGUMENT: …}"


@dataclasses.dataclass(frozen=True)
class ByOutput(Generic[_T]):
    """The values of a setting.

    Attributes:
        setting: The name of the setting, for messages.
        values: The values by output. The only key of a value for all outputs is None.
    """

    setting: str
    values: Mapping[Key, _T]

    def path(self, key: Key) -> str:
        """Returns the path of a value."""
        if key is None:
            return self.setting
        return f"{self.setting}[{key}]" if isinstance(key, int) else f"{self.setting}.{key}"

    def key_of(self, name: str, number: int) -> Key:
        """Returns the key of the value for an output; the value may be missing."""
        if None in self.values:
            return None
        return number if number in self.values else name

    def get(self, name: str, number: int) -> _T | None:
        """Returns the value for an output, None if it has none."""
        return self.values.get(self.key_of(name, number))

    def check(self, names: Sequence[str]) -> None:
        """Raises `SettingError` if there are values for other outputs than those of the model."""
        shown = ", ".join(names)
        keys = [key for key in self.values if key is not None]
        numbers = [key for key in keys if isinstance(key, int)]
        if keys and not names:
            raise SettingError(
                self.setting,
                "has values for several outputs, but the model returns a single tensor\n"
                "set one value",
                code="model-mismatch",
            )
        if numbers and len(numbers) != len(names):
            raise SettingError(
                self.setting,
                f"got {format_count(len(numbers), 'value')}, expected one for each output of the "
                f"model: {shown}",
                code="wrong-type",
            )
        for key in keys:
            if isinstance(key, str) and key not in names:
                raise SettingError(
                    self.path(key),
                    f"the model has no output {key!r}{nearest_name_hint(key, names)}\n"
                    f"allowed: {shown}",
                    code="unknown-name",
                )


def losses_by_output(setting: LossSetting, path: str = "task.loss") -> ByOutput[Item | None]:
    """Returns the losses of the setting `loss`; none if it is not set.

    A mapping with the key `name` is one loss with arguments. A loss that is None counts for
    nothing.
    """
    if not setting:
        return ByOutput(path, {})
    if isinstance(setting, str) or (isinstance(setting, Mapping) and NAME in setting):
        return ByOutput(path, {None: setting})
    return ByOutput(path, _values(setting))


def weights_by_output(
    setting: Sequence[float] | Mapping[str, float], path: str = "task.loss_weights"
) -> ByOutput[float]:
    """Returns the weights of the setting `loss_weights`; none if it is not set."""
    return ByOutput(path, _values(setting))


def metrics_by_output(
    setting: MetricsSetting, path: str = "task.metrics"
) -> ByOutput[Sequence[Item]]:
    """Returns the metrics of the setting `metrics`: of all outputs, unless an item is a list."""
    if isinstance(setting, Mapping) or any(_is_list(item) for item in setting):
        values = _values(setting)
        listed = {key: item if _is_list(item) else [item] for key, item in values.items()}
        return ByOutput(path, listed)
    items: dict[Key, Any] = {None: setting} if setting else {}
    return ByOutput(path, items)


def _values(setting: Sequence[Any] | Mapping[str, Any]) -> dict[Key, Any]:
    values: dict[Key, Any] = {}
    values.update(setting if isinstance(setting, Mapping) else enumerate(setting))
    return values


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple))


def loss_problems(setting: LossSetting) -> Iterator[Problem]:
    """Yields (field, message) for losses that do not exist, or have wrong arguments."""
    losses = losses_by_output(setting, "loss")
    for key, item in losses.values.items():
        if isinstance(item, (str, Mapping)) and item:
            for problem in item_problems("losses", item):
                yield dataclasses.replace(problem, path=losses.path(key))
        elif item is not None:
            got = f"got {shorten(repr(item))}, {_LOSS}"
            if isinstance(setting, Mapping):
                got += f"\na mapping without the key {NAME!r} has a loss for each output"
            yield Problem(losses.path(key), got, code="wrong-type")


def weight_problems(setting: Sequence[float] | Mapping[str, float]) -> Iterator[Problem]:
    """Yields (field, message) for weights of losses that are not numbers."""
    weights = weights_by_output(setting, "loss_weights")
    for key, value in weights.values.items():
        if not is_finite_number(value) or abs(value) > FLOAT_MAX:
            yield Problem(
                weights.path(key),
                f"got {shorten(repr(value))}, expected a number",
                code="wrong-type",
            )


def output_metric_problems(setting: MetricsSetting) -> Iterator[Problem]:
    """Yields (field, message) for metrics that do not exist, or have the name of another one."""
    metrics = metrics_by_output(setting, "metrics")
    for key, items in metrics.values.items():
        for item in items:
            if not isinstance(item, (str, Mapping)):
                yield Problem(
                    metrics.path(key),
                    f"got {shorten(repr(item))}, expected a metric or a list",
                    code="wrong-type",
                )
                return
        for problem in metric_problems(items):
            path = problem.path.replace("metrics", metrics.path(key), 1)
            yield dataclasses.replace(problem, path=path)


def named_items(loss: LossSetting, metrics: MetricsSetting) -> Iterator[tuple[str, str]]:
    """Yields the path of the setting and the name of each loss and metric."""
    for item in losses_by_output(loss).values.values():
        if item is not None:
            yield "task.loss", split_item(item)[0]
    for items in metrics_by_output(metrics).values.values():
        yield from (("task.metrics", split_item(item)[0]) for item in items)
