"""What a run found out about its arrays, and the vocabularies of its model's lookup layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import tf_keras

from orbit_runner.data.source import ArraySource
from orbit_runner.errors import DataError, SettingError, shorten
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.keras.config import SECTIONS, KerasConfig
from orbit_runner.tasks.keras.keras_names import split_item
from orbit_runner.tasks.keras.outputs import Labels, labels_of
from orbit_runner.tasks.keras.sources import W, Y, section_source, specs_of

# The assets of a run.
ARRAYS_FILE, VOCABULARIES_FILE = "arrays.json", "layer_vocabularies.json"
Specs = Mapping[str, tuple[tuple[int, ...], str]]


@dataclasses.dataclass(frozen=True)
class TrainedArrays:
    """The arrays that a model is trained on.

    Attributes:
        specs: The shape of an example and the type of each array, by dotted path.
        labels: The labels of all sections.
    """

    specs: Specs
    labels: Labels

    def check(self, source: ArraySource, section: str) -> None:
        """Raises `SettingError` if the arrays of a section do not fit those of the run."""
        specs = specs_of(source)
        for path in sorted({*specs, *self.specs} - {W}):
            if specs.get(path) != self.specs.get(path):
                raise SettingError(
                    f"task.{section}.source",
                    f"got {path} {_format_spec(specs.get(path))}, but the run was trained on "
                    f"{_format_spec(self.specs.get(path))}\n"
                    "use arrays like those of the training, or another --model_dir",
                )


def trained_arrays(config: KerasConfig, assets: Assets) -> TrainedArrays:
    """Returns what a run found out about its arrays; of a new run, finds it out.

    Raises `DataError` if the arrays cannot be read.
    """
    content = assets.get_json(ARRAYS_FILE, lambda: dataclasses.asdict(_describe(config)))
    try:
        specs = {path: (tuple(shape), dtype) for path, (shape, dtype) in content["specs"].items()}
        labels = content["labels"] | {"shape": tuple(content["labels"]["shape"])}
        return TrainedArrays(specs, Labels(**labels))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise assets.damaged(ARRAYS_FILE, repr(error)) from None


def _describe(config: KerasConfig) -> TrainedArrays:
    data = config.train_data
    try:
        sources = [section_source(config, section) for section in SECTIONS]
    except DataError:
        # Another process had the arrays, and recorded their shapes.
        if not data.features:
            raise
        specs = {path: (tuple(one["shape"]), one["dtype"]) for path, one in data.features.items()}
        return TrainedArrays(specs, Labels(*specs[Y]))
    train = sources[0]
    if train is None:
        raise DataError("is not set", field="source")
    arrays = [source.arrays[Y] for source in sources if source is not None]
    labels = labels_of(arrays, split_item(config.loss)[1].get("ignore_class"))
    return TrainedArrays(specs_of(train), labels)


def check_vocabularies(model: tf_keras.Model, assets: Assets) -> None:
    """Raises `SettingError` if a lookup layer has another vocabulary than in the run.

    A model that adapts its layers to a file would map other words to the trained weights once the
    file changes. Vocabularies are not in checkpoints.
    """
    layers = [layer for layer in _all_layers(model) if hasattr(layer, "get_vocabulary")]
    # By place, because names depend on the models that the process has built before.
    vocabularies = {str(place): _words(layer) for place, layer in enumerate(layers)}
    if not vocabularies and not assets.has(VOCABULARIES_FILE):
        return
    trained = assets.get_json(VOCABULARIES_FILE, lambda: vocabularies)
    for place, layer in enumerate(layers):
        words, before = vocabularies[str(place)], trained.get(str(place))
        if before is not None and words != before:
            raise SettingError(
                "task.model",
                f"the layer {layer.name!r} has another vocabulary than the run was trained with: "
                f"{_describe_difference(words, before)}\n"
                "restore the file that the layer was adapted to, or use another --model_dir",
            )


def _all_layers(model: tf_keras.Model) -> list[Any]:
    layers = [layer for layer in model.submodules if isinstance(layer, tf_keras.layers.Layer)]
    # A lookup layer may be part of another one, such as `TextVectorization`.
    inner = {id(part) for layer in layers for part in layer.submodules}
    return [layer for layer in layers if id(layer) not in inner or layer in model.layers]


def _words(layer: Any) -> list[Any]:
    """Returns the vocabulary of a lookup layer as JSON values."""
    return [
        word.decode(errors="backslashreplace")
        if isinstance(word, bytes)
        else word.item()
        if hasattr(word, "item")
        else word
        for word in layer.get_vocabulary()
    ]


def _describe_difference(words: list[Any], trained: list[Any]) -> str:
    for place, (word, before) in enumerate(zip(words, trained, strict=False)):
        if word != before:
            return f"entry {place} is {shorten(repr(word))}, previously {shorten(repr(before))}"
    return f"{len(words):,} entries, previously {len(trained):,}"


def _format_spec(spec: tuple[tuple[int, ...], str] | None) -> str:
    return "none" if spec is None else f"{spec[1]} {list(spec[0])}"
