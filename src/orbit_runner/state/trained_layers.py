"""Freezes layers, and unfreezes some of them at a later step, as `trainer.fine_tuning` requests.

A frozen layer is not trainable in the sense of Keras: it has no gradient and no weight decay, and
batch normalization uses its moving averages. The graph of a step is traced again when the trained
layers change, so they must be a function of the step alone. The table of layers shows which are
frozen, with which rate they are trained, and what was loaded.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.trainer import FineTuning
from orbit_runner.errors import SettingError
from orbit_runner.tasks.initial_weights import LoadedWeights
from orbit_runner.tasks.layer_names import (
    NamedLayer,
    named_layers,
    no_match_message,
    selects,
)
from orbit_runner.tf_internals import all_layers, inner_layers
from orbit_runner.utils.text_table import table_lines

if TYPE_CHECKING:
    import tensorflow as tf
    import tf_keras


_PATH = "trainer.fine_tuning"


class TrainedLayers:
    """The trained layers of a model at each step, and the factors of their learning rates.

    Creating it makes all layers trainable that are trained at some step. Raises `SettingError` if
    a pattern matches no layer or has no effect, or if no layer is left to train.

    Attributes:
        layers: The layers that have weights.
        factors: The factor of the learning rate by the `id` of each trained variable; 1 if missing.
    """

    def __init__(self, config: FineTuning, model: tf.Module) -> None:
        self.layers = named_layers(model)
        if not self.layers:
            raise SettingError(
                _PATH, f"{type(model).__name__} is not a Keras model with layers", code="bad-model"
            )
        # Outer layers first, because Keras passes the value on to all layers inside.
        self._ordered = sorted(self.layers, key=lambda named: -len(all_layers(named.layer)))
        was_trainable = {id(named.layer) for named in self.layers if named.layer.trainable}
        self._starts = self._first_steps(config, was_trainable)
        self._boundaries = sorted({start for start in self._starts.values() if start})
        self._check_outer_layers()
        self.factors = self._rate_factors(config)
        self.set_trainable_layers(max(self._boundaries, default=0))

    def first_step(self, layer: NamedLayer) -> int | None:
        """Returns the number of steps before a layer is trained; None if it never is."""
        return self._starts.get(id(layer.layer))

    def factor(self, layer: NamedLayer) -> float:
        """Returns the factor of a layer's learning rate."""
        return next((self.factors.get(id(weight), 1.0) for weight in layer.trainable_weights), 1.0)

    def stage(self, step: int) -> int:
        """Returns how often the trained layers have changed up to a step."""
        return sum(boundary <= step for boundary in self._boundaries)

    def steps_left(self, step: int, steps: int) -> int:
        """Returns how many of the next `steps` steps after a global step train the same layers."""
        ahead = [boundary - step for boundary in self._boundaries if boundary > step]
        return min([steps, *ahead])

    def set_trainable_layers(self, step: int) -> None:
        """Makes the layers trainable that the step after a global step trains."""
        trained = self._trained_layer_ids(step)
        for named in self._ordered:
            named.layer.trainable = id(named.layer) in trained
        self.frozen = {
            id(weight)
            for named in self.layers
            if not self._is_trained(named.layer, step)
            for weight in named.weights
        }

    def _is_trained(self, layer: tf_keras.layers.Layer, step: int) -> bool:
        start = self._starts.get(id(layer))
        return start is not None and start <= step

    def _trained_layer_ids(self, step: int) -> set[int]:
        """Returns the `id` of each layer that is trained or contains such a layer."""
        trained: set[int] = set()
        for named in reversed(self._ordered):
            inner = any(id(below) in trained for below in inner_layers(named.layer))
            if inner or (named.weights and self._is_trained(named.layer, step)):
                trained.add(id(named.layer))
        return trained

    def _first_steps(self, config: FineTuning, was_trainable: set[int]) -> dict[int, int]:
        """Returns the first step of each layer that is trained, by the `id` of the layer."""
        frozen = self._select_layers(config.freeze, self.layers, f"{_PATH}.freeze")
        starts = {
            id(named.layer): 0
            for named in self.layers
            if id(named.layer) in was_trainable and named not in frozen
        }
        for index, entry in enumerate(config.unfreeze):
            path = f"{_PATH}.unfreeze[{index}].layers"
            for named in self._select_layers(entry.layers, frozen, path, "frozen layer"):
                if id(named.layer) in was_trainable:
                    key = id(named.layer)
                    starts[key] = min(entry.step, starts.get(key, entry.step))
        if not any(
            starts.get(id(named.layer)) == 0 and named.trainable_weights for named in self.layers
        ):
            raise SettingError(
                f"{_PATH}.freeze",
                "freezes all layers, so the first step would train nothing\n"
                "leave out at least one layer, such as the last one: "
                f"{self.layers[-1].name!r}",
                code="no-effect",
            )
        return starts

    def _select_layers(
        self, patterns: Sequence[str], among: Sequence[NamedLayer], path: str, kind: str = "layer"
    ) -> list[NamedLayer]:
        """Returns the layers that any of the patterns selects; each must select one."""
        for pattern in patterns:
            if not any(selects(pattern, named.name) for named in among):
                names = [named.name for named in among if named.layer is not self.layers[0].layer]
                raise SettingError(
                    path, no_match_message(kind, pattern, names), code="unknown-name"
                )
        return [
            named for named in among if any(selects(pattern, named.name) for pattern in patterns)
        ]

    def _check_outer_layers(self) -> None:
        """Raises an error if a layer's own weights are frozen while a layer inside is trained.

        Keras cannot train a layer inside one that is not trainable.
        """
        for step in (0, *self._boundaries):
            trained = self._trained_layer_ids(step)
            for named in self.layers:
                is_frozen = named.trainable_weights and not self._is_trained(named.layer, step)
                if is_frozen and id(named.layer) in trained:
                    raise SettingError(
                        f"{_PATH}.freeze",
                        f"the layer {named.name!r} has weights of its own, so it cannot be frozen "
                        "while layers inside it are trained\nfreeze them too, or leave it out",
                        code="conflict",
                    )

    def _rate_factors(self, config: FineTuning) -> dict[int, float]:
        factors: dict[int, float] = {}
        for index, entry in enumerate(config.learning_rates):
            path = f"{_PATH}.learning_rates[{index}].layers"
            weights = [
                id(weight)
                for named in self._select_layers(entry.layers, self.layers, path)
                if self.first_step(named) is not None
                for weight in named.trainable_weights
            ]
            if all(weight in factors for weight in weights):
                why = "earlier entries match all their layers" if weights else "they are frozen"
                raise SettingError(
                    path, f"{list(entry.layers)} has no effect: {why}", code="no-effect"
                )
            factors = {**dict.fromkeys(weights, entry.factor), **factors}
        return factors


HEADER = ("layers", "parameters", "frozen", "learning rate", "loaded from")


@dataclasses.dataclass(frozen=True)
class LayerGroup:
    """Consecutive layers with the same settings."""

    first: str
    last: str
    layers: int
    parameters: int
    frozen: str  # `no`, `yes`, or `until step 1000`; `-` if the layers have nothing to train.
    factor: float | None  # Of the learning rate; None if the layers are never trained.
    loaded_from: str  # "" if their weights are new.

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
