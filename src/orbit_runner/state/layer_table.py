"""The table of layers: which are frozen, with which rate they are trained, and what was loaded."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.state.trained_layers import TrainedLayers
from orbit_runner.tasks.initial_weights import LoadedWeights
from orbit_runner.tasks.layer_names import NamedLayer, named_layers
from orbit_runner.utils.text_table import table_lines

if TYPE_CHECKING:
    import tensorflow as tf


HEADER = ("layers", "parameters", "frozen", "learning rate", "loaded from")


@dataclasses.dataclass(frozen=True)
class LayerGroup:
    """Consecutive layers with the same settings.

    Attributes:
        first: The name of the first layer.
        last: The name of the last layer.
        layers: Their number.
        parameters: The number of parameters.
        frozen: `no`, `yes`, or `until step 1000`; `-` if the layers have nothing to train.
        factor: The factor of the learning rate; None if the layers are never trained.
        loaded_from: What their weights were loaded from; "" if they are new.
    """

    first: str
    last: str
    layers: int
    parameters: int
    frozen: str
    factor: float | None
    loaded_from: str

    @property
    def name(self) -> str:
        """The names as text, such as `conv1 … conv5 (5)`."""
        return self.first if self.layers == 1 else f"{self.first} … {self.last} ({self.layers})"


def has_table(config: ExperimentConfig) -> bool:
    """Returns whether a config freezes layers, changes their rates, or loads only some."""
    ignores = getattr(config.task, "init_ignore", ())
    return config.trainer.fine_tuning is not None or bool(ignores)


def layer_groups(
    model: tf.Module, trained: TrainedLayers | None, loaded: LoadedWeights | None
) -> list[LayerGroup]:
    """Returns the layers of a model that have weights, those with equal settings as one row.

    `trained` is None if the config freezes no layer, and `loaded` if no weights were loaded.
    """
    layers = [
        layer for layer in (trained.layers if trained else named_layers(model)) if layer.weights
    ]

    def settings(layer: NamedLayer) -> tuple[str, float | None, str]:
        return *_training_settings(layer, trained), _source(layer, loaded)

    return [_group(list(members), *same) for same, members in itertools.groupby(layers, settings)]


def _group(
    layers: Sequence[NamedLayer], frozen: str, factor: float | None, loaded_from: str
) -> LayerGroup:
    return LayerGroup(
        first=layers[0].name,
        last=layers[-1].name,
        layers=len(layers),
        parameters=sum(layer.parameters for layer in layers),
        frozen=frozen,
        factor=factor,
        loaded_from=loaded_from,
    )


def _training_settings(
    layer: NamedLayer, trained: TrainedLayers | None
) -> tuple[str, float | None]:
    if not layer.trainable_weights:
        return "-", None
    if trained is None:
        return ("no", 1.0) if layer.layer.trainable else ("yes", None)
    start = trained.first_step(layer)
    if start is None:
        return "yes", None
    return f"until step {start}" if start else "no", trained.factor(layer)


def _source(layer: NamedLayer, loaded: LoadedWeights | None) -> str:
    weights = layer.weights
    count = 0 if loaded is None else sum(id(weight) in loaded.variables for weight in weights)
    if loaded is None or not count:
        return ""
    part = "" if count == len(weights) else f" ({count} of {len(weights)} variables)"
    return f"{loaded.source}{part}"


def table_rows(groups: Sequence[LayerGroup]) -> list[tuple[str, ...]]:
    """Returns the rows of the table as text, without the header."""
    return [
        (
            group.name,
            f"{group.parameters:,}",
            group.frozen,
            "-" if group.factor is None else f"× {group.factor:g}",
            group.loaded_from or "-",
        )
        for group in groups
    ]


def format_table(groups: Sequence[LayerGroup]) -> list[str]:
    """Returns the lines of the table."""
    return table_lines([HEADER, *table_rows(groups)], right=[1], indent="  ")
