"""`.keras` files, which Keras loads without this package: Keras 3 its own, tf_keras the others."""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.errors import RunnerError, first_line
from orbit_runner.serving.formats.base import NetworkFormat
from orbit_runner.tf_internals import all_layers, is_keras_layer, uncompiled_scope

if TYPE_CHECKING:
    import tf_keras

    from orbit_runner.serving.network import Network
    from orbit_runner.utils.types import Tensors

_REPLACEMENT = "without_this_package"  # the method of this package's layers that returns others
_METADATA = "metadata.json"
_VERSION = "keras_version"
_MOST_CLASSES = 5


class KerasFile(NetworkFormat):
    """A Keras model, with layers of tf_keras in place of this package's own."""

    def write(self, network: Network, path: Path, features: Iterable[Tensors]) -> None:
        """Writes a model. Raises `RunnerError` if it has layers of other packages."""
        from orbit_runner.tasks.keras.model_builder import copy_reproducibly

        model = getattr(network.model, "keras_3_model", None) or _replace_layers(network.model)
        classes = dict.fromkeys(
            f"{type(layer).__module__}.{type(layer).__qualname__}"
            for layer in _foreign_layers(model)
        )
        if classes:
            names = list(classes)
            more = f" and {len(names) - _MOST_CLASSES} more" if len(names) > _MOST_CLASSES else ""
            raise RunnerError(
                "the network cannot be a .keras file that Keras alone can load: its layers are "
                f"of the classes {', '.join(names[:_MOST_CLASSES])}{more}",
                code="export-failed",
            )
        try:
            with tempfile.TemporaryDirectory() as directory:
                saved_path = Path(directory) / path.name
                with uncompiled_scope(model):  # Loss and metrics may be functions of the user.
                    model.save(saved_path)
                copy_reproducibly(saved_path, path)
        except (NotImplementedError, TypeError, ValueError) as error:
            raise RunnerError(
                f"the network cannot be saved: {first_line(error)}", code="export-failed"
            ) from error

    def load(self, path: Path, inputs: Sequence[str], outputs: Sequence[str]) -> tf_keras.Model:
        """Loads a file with the Keras that wrote it."""
        with zipfile.ZipFile(path) as file:
            metadata = json.loads(file.read(_METADATA))
        if str(metadata[_VERSION]).startswith("3."):
            import keras

            return keras.models.load_model(path, compile=False)
        import tf_keras

        return tf_keras.models.load_model(path, compile=False)


FORMAT = KerasFile(name="keras", file="model.keras", tolerance=1e-5, loads_keras_model=True)


def _replace_layers(model: tf_keras.Model) -> tf_keras.Model:
    """Returns a copy with the same weights, or the model itself if it needs no other layers."""
    import tf_keras

    if not any(hasattr(layer, _REPLACEMENT) for layer in _layers(model)):
        return model
    copy = tf_keras.models.clone_model(model, clone_function=_clone)
    copy.set_weights(model.get_weights())
    return copy


def _clone(layer: tf_keras.layers.Layer) -> tf_keras.layers.Layer:
    replace = getattr(layer, _REPLACEMENT, None)
    return type(layer).from_config(layer.get_config()) if replace is None else replace()


def _layers(model: tf_keras.Model) -> Iterator[tf_keras.layers.Layer]:
    return iter(all_layers(model, include_self=False) if is_keras_layer(model) else ())


def _foreign_layers(model: tf_keras.Model) -> Iterator[tf_keras.layers.Layer]:
    return (layer for layer in (model, *_layers(model)) if not _is_keras_class(type(layer)))


def _is_keras_class(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in ("tf_keras", "keras")
