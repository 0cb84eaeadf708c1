"""`.keras` files, which tf_keras loads without this package."""

from __future__ import annotations

import dataclasses
import json
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tf_keras

from orbit_runner.errors import RunnerError, first_line
from orbit_runner.models.normalize import Normalize
from orbit_runner.models.resnet_blocks import PadShortcut
from orbit_runner.serving.network import Network, NumpyFunction
from orbit_runner.tf_internals import all_layers, is_keras_layer

_METADATA, _DATE = "metadata.json", "date_saved"
_MOST_CLASSES = 5


def write(network: Network, path: Path) -> None:
    """Writes a model, with layers of tf_keras in place of this package's own.

    The same model gives the same bytes. Raises `RunnerError` if it has layers of other packages.
    """
    model = _replace_layers(network.model)
    found = dict.fromkeys(
        f"{type(one).__module__}.{type(one).__qualname__}" for one in _foreign_layers(model)
    )
    if found:
        names = list(found)
        more = f" and {len(names) - _MOST_CLASSES} more" if len(names) > _MOST_CLASSES else ""
        raise RunnerError(
            "the network cannot be a .keras file that tf_keras alone can load: its layers are of "
            f"the classes {', '.join(names[:_MOST_CLASSES])}{more}"
        )
    try:
        with tempfile.TemporaryDirectory() as folder:
            saved = Path(folder) / path.name
            model.save(saved)
            _copy_without_date(saved, path)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise RunnerError(f"the network cannot be saved: {first_line(error)}") from error


def load(path: Path, network: Network) -> NumpyFunction:
    """Loads a file with tf_keras."""
    model = tf_keras.models.load_model(path, compile=False)
    return dataclasses.replace(network, model=model).numpy_function()


def _replace_layers(model: Any) -> Any:
    """Returns a copy with the same weights, or the model itself if it needs no other layers."""
    if not any(type(one) in _REPLACEMENTS for one in _layers(model)):
        return model
    copy = tf_keras.models.clone_model(model, clone_function=_clone)
    copy.set_weights(model.get_weights())
    return copy


def _clone(layer: Any) -> Any:
    replace = _REPLACEMENTS.get(type(layer))
    return type(layer).from_config(layer.get_config()) if replace is None else replace(layer)


def _build_normalization(layer: Normalize) -> Any:
    mean, std = layer.mean or (0.0,), layer.std or (1.0,)
    width = max(len(mean), len(std))
    return tf_keras.layers.Normalization(
        mean=np.resize(mean, width),
        variance=np.square(np.resize(std, width)),
        name=layer.name,
        dtype=layer.dtype_policy,
    )


def _build_pad_shortcut(layer: PadShortcut) -> Any:
    """Returns layers that keep every `stride`-th pixel and pad the channels."""
    layers = tf_keras.layers
    _, _, _, channels = layer.input_shape
    # The columns and channels of an image are what `channels_first` regards as rows and columns.
    padding = ((0, 0), (0, layer.filters - channels))
    return tf_keras.Sequential(
        [
            layers.MaxPooling2D(1, layer.stride, name=f"{layer.name}_stride"),
            layers.ZeroPadding2D(padding, data_format="channels_first", name=f"{layer.name}_pad"),
        ],
        name=layer.name,
    )


_REPLACEMENTS: dict[type, Callable[[Any], Any]] = {
    Normalize: _build_normalization,
    PadShortcut: _build_pad_shortcut,
}


def _layers(model: Any) -> Iterator[Any]:
    return iter(all_layers(model, include_self=False) if is_keras_layer(model) else ())


def _foreign_layers(model: Any) -> Iterator[Any]:
    return (one for one in (model, *_layers(model)) if not _is_keras_class(type(one)))


def _is_keras_class(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in ("tf_keras", "keras")


def _copy_without_date(saved: Path, path: Path) -> None:
    """Copies a .keras file, which is a ZIP archive, without the times in it."""
    with zipfile.ZipFile(saved) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name == _METADATA:
                values = json.loads(content)
                content = json.dumps({k: v for k, v in values.items() if k != _DATE}).encode()
            target.writestr(zipfile.ZipInfo(name), content)
