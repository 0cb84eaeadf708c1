"""Freezes layers and scales the learning rates of others, as `trainer.fine_tuning` requests.

A frozen layer is not trainable in the sense of Keras: it has no gradient and no weight decay, and
batch normalization uses its moving averages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    import tensorflow as tf

_PATH = "trainer.fine_tuning"


class TrainedLayers:
    """The trained layers of a model, and the factors of their learning rates.

    Creating it sets which layers are trainable. Raises `SettingError` if a pattern matches no layer
    or has no effect, or if no layer is left to train.

    Attributes:
        layers: The layers that have weights.
        frozen: The `id` of each variable of a frozen layer.
        factors: The factor of the learning rate by the `id` of each trained variable; 1 if missing.
    """

    def __init__(self, config: FineTuning, model: tf.Module) -> None:
        self.layers = named_layers(model)
        if not self.layers:
            raise SettingError(
                _PATH, f"{type(model).__name__} is not a Keras model with layers", code="bad-model"
            )
        frozen = self._select_layers(config.freeze, f"{_PATH}.freeze")
        self._trained = {
            named for named in self.layers if named.layer.trainable and named not in frozen
        }
        if not any(named.trainable_weights for named in self._trained):
            raise SettingError(
                f"{_PATH}.freeze",
                "freezes all layers, so a step would train nothing\n"
                "leave out at least one layer, such as the last one: "
                f"{self.layers[-1].name!r}",
                code="no-effect",
            )
        self.factors = self._rate_factors(config)
        self._set_trainable_layers()
        self.frozen = {
            id(weight)
            for named in self.layers
            if named not in self._trained
            for weight in named.weights
        }

    def _select_layers(self, patterns: Sequence[str], path: str) -> list[NamedLayer]:
        """Returns the layers that any of the patterns selects; each must select one."""
        for pattern in patterns:
            if not any(selects(pattern, named.name) for named in self.layers):
                inner = [named for named in self.layers if named.layer is not self.layers[0].layer]
                names = [named.name for named in inner]
                raise SettingError(
                    path, no_match_message("layer", pattern, names), code="unknown-name"
                )
        return [
            named
            for named in self.layers
            if any(selects(pattern, named.name) for pattern in patterns)
        ]

    def _set_trainable_layers(self) -> None:
        """Makes the trained layers trainable, and those that contain one, but no others.

        Raises an error if a frozen layer with weights of its own contains a trained one: Keras
        cannot train a layer inside one that is not trainable.
        """
        trained = {id(named.layer) for named in self._trained if named.weights}
        # Outer layers first, because Keras passes the value on to all layers inside.
        ordered = sorted(self.layers, key=lambda named: -len(all_layers(named.layer)))
        for named in reversed(ordered):
            if any(id(inner) in trained for inner in inner_layers(named.layer)):
                if named.trainable_weights and named not in self._trained:
                    raise SettingError(
                        f"{_PATH}.freeze",
                        f"the layer {named.name!r} has weights of its own, so it cannot be frozen "
                        "while layers inside it are trained\nfreeze them too, or leave it out",
                        code="conflict",
                    )
                trained.add(id(named.layer))
        for named in ordered:
            named.layer.trainable = id(named.layer) in trained

    def _rate_factors(self, config: FineTuning) -> dict[int, float]:
        factors: dict[int, float] = {}
        for index, entry in enumerate(config.learning_rates):
            path = f"{_PATH}.learning_rates[{index}].layers"
            weights = [
                id(weight)
                for named in self._select_layers(entry.layers, path)
                if named in self._trained
                for weight in named.trainable_weights
            ]
            if all(weight in factors for weight in weights):
                why = "earlier entries match all their layers" if weights else "they are frozen"
                raise SettingError(
                    path, f"{list(entry.layers)} has no effect: {why}", code="no-effect"
                )
            factors = {**dict.fromkeys(weights, entry.factor), **factors}
        return factors

    def describe(self, loaded: LoadedWeights | None) -> str:
        """Returns a line about the layers that are frozen, and those whose weights were loaded."""
        layers = [named for named in self.layers if named.weights]
        frozen = sum(named not in self._trained for named in layers)
        text = f"fine-tuning: {frozen} of {len(layers)} layers are frozen"
        if loaded is None:
            return text
        count = sum(
            any(id(weight) in loaded.variables for weight in named.weights) for named in layers
        )
        return f"{text}, {count} are loaded from {loaded.source}"
