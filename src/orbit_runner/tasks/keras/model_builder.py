"""Builds the model of a config: calls the function of the user, or loads a file."""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import re
import tempfile
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner.determinism import keras_3
from orbit_runner.errors import (
    RunnerError,
    SettingError,
    first_line,
)
from orbit_runner.storage.staging import local_file
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.keras.compiled import Compiled, compiled_model
from orbit_runner.tasks.keras.config import KerasModelConfig
from orbit_runner.tasks.keras.keras_3 import Keras3Model, is_keras_3_model, keras_3_inputs
from orbit_runner.tasks.keras.outputs import call_error, reason_of
from orbit_runner.tasks.keras.passed_objects import MODELS, bound_function
from orbit_runner.tasks.keras_items import is_keras_class
from orbit_runner.tf_internals import all_layers, is_functional, uncompiled_scope
from orbit_runner.utils.code_digest import code_digest, is_importable
from orbit_runner.utils.user_code import is_installed

if TYPE_CHECKING:
    import keras

    from orbit_runner.utils.types import Tensors

VOCABULARIES_FILE = "layer_vocabularies.json"  # An asset of the run.
MODEL_FILE = "model.keras"  # An asset of the run of a model that a program passed.

_MODEL = "task.model"
_BUILD = "task.model.build"
_FILE = "task.model.file"
_METADATA = "metadata.json"
_CONFIG = "config.json"
_DATE = "date_saved"
# Keras writes the addresses of objects that are used several times.
_OBJECT_ID = re.compile(rb'("shared_object_id": )(\d+)')


def build_model(
    config: KerasModelConfig, inputs: Tensors, assets: Assets
) -> tuple[tf_keras.Model, Compiled]:
    """Returns the model, and the interface that compiles and trains it.

    Must be called in the strategy's scope. `inputs` are Keras inputs with the shapes and types of
    the data. Raises `SettingError` if the function cannot be called or returns anything else.
    """
    with keras_3.configured_scope():
        if config.digest:
            model: Any = _load_passed_model(config.digest, assets)
        elif config.file:
            path = local_file(config.file, _FILE)
            model = _load_file(Path(path).read_bytes(), path, _FILE)
        else:
            path = "task.model.arguments"
            model = bound_function(config.build, config.arguments, _BUILD, path)()
    if is_keras_3_model(model):
        model = _adapt_keras_3_model(model, inputs)
    elif not isinstance(model, tf_keras.Model):
        kind = f"{type(model).__module__}.{type(model).__qualname__}"
        raise SettingError(
            _BUILD, f"{config.build} returns {kind}, expected a Keras model", code="wrong-type"
        )
    _require_same_inputs(model, inputs)
    return model, compiled_model(model)


def _adapt_keras_3_model(model: keras.Model, inputs: Tensors) -> Keras3Model:
    """Returns a model of Keras 3 with the interface of one of Keras 2.

    Creates the variables of a model that Keras 3 would create when it is called first.
    """
    if (backend := keras_3.backend()) != "tensorflow":
        raise SettingError(
            _BUILD,
            f"the model is one of Keras 3 with the backend {backend}, expected tensorflow\n"
            "set KERAS_BACKEND=tensorflow in the environment, and remove another backend from "
            "~/.keras/keras.json",
            code="wrong-type",
        )
    # A subclass without `call`, such as a GAN, cannot be called.
    has_call = any("call" in vars(cls) for cls in type(model).__mro__ if not is_keras_class(cls))
    is_whole = (is_functional(model) and model.built) or not (has_call or is_functional(model))
    if not is_whole:
        try:
            model(keras_3_inputs(inputs))
        except Exception as error:  # The code of the model may raise any error.
            raise call_error(inputs, error) from error
    return Keras3Model(model)


def register_model(model: tf_keras.Model | keras.Model) -> str:
    """Registers a model for runs in this process. Returns the digest that names it in a config.

    The digest is that of its layers and of its weights, if it has them already.
    """
    try:
        layers = json.dumps(model.get_config(), sort_keys=True, default=_stable_text)
    except Exception as error:  # The code of the model may raise any error.
        raise RunnerError(_copy_problem(model, error), code="bad-model") from error
    hashed = hashlib.sha256(_OBJECT_ID.sub(b"", layers.encode()))
    hashed.update(type(model).__qualname__.encode())
    for item in _own_code(model):
        hashed.update(code_digest(item).encode())
    for value in _values_of(model):
        hashed.update(f"{value.dtype} {value.shape}".encode())
        hashed.update(np.ascontiguousarray(value).tobytes())
    digest = hashed.hexdigest()
    MODELS[digest] = model
    return digest


def _own_code(model: tf_keras.Model | keras.Model) -> Iterator[object]:
    """Yields the classes and functions of layers that no module has, such as those of a script."""
    for layer in all_layers(model):
        if not is_importable(type(layer)):
            yield type(layer)
        functions = [value for value in vars(layer).values() if inspect.isfunction(value)]
        for function in functions:  # Keras keeps some of its own there, too.
            if not is_importable(function) and not is_installed(function.__code__.co_filename):
                yield function


def _stable_text(value: object) -> str:
    """Returns a text for what JSON cannot represent, without its address."""
    return str(value) if isinstance(value, np.generic) else type(value).__qualname__


def _values_of(model: tf_keras.Model | keras.Model) -> list[np.ndarray]:
    """Returns the weights of a model; [] if it has not created them yet."""
    try:
        weights = model.weights
    except ValueError:  # Keras 2 raises it for a model that was never called.
        return []
    return [
        weight.numpy()
        for weight in weights
        if is_keras_3_model(model) or isinstance(weight, tf.Variable)
    ]


def _load_passed_model(digest: str, assets: Assets) -> tf_keras.Model | keras.Model:
    """Returns a copy of a model that a program passed, as a `.keras` file copies it.

    The run keeps the file, so that other processes have the model, too.
    """
    model = MODELS.get(digest)
    if model is None and not assets.has(MODEL_FILE):
        raise SettingError(
            _MODEL,
            "the model was passed to orbit_runner.run, and this process does not have it\n"
            "run the Python program again; it resumes the run",
            code="not-repeatable",
        )
    content: bytes = assets.get(MODEL_FILE, lambda: _file_of(model))
    own = {} if model is None else _own_classes(model)
    try:
        return _load_file(content, MODEL_FILE, _MODEL, own, is_trusted=model is not None)
    except SettingError as error:
        if model is None:
            raise
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        raise SettingError(_MODEL, _copy_problem(model, cause), code="bad-model") from error


def _own_classes(model: Any) -> dict[str, type]:
    """Returns the classes of a model and its layers that Keras does not know, by name."""
    classes = {type(layer) for layer in all_layers(model)}
    own = (cls for cls in classes if not is_keras_class(cls))
    return {cls.__name__: cls for cls in own}


def _file_of(model: tf_keras.Model | keras.Model) -> bytes:
    """Returns the `.keras` file of a model, without what `compile` was told."""
    with tempfile.TemporaryDirectory() as directory, uncompiled_scope(model):
        saved_path = Path(directory) / MODEL_FILE
        copy = Path(directory) / f"copy-{MODEL_FILE}"
        try:
            with warnings.catch_warnings():  # It may not have been called yet.
                warnings.simplefilter("ignore")
                model.save(saved_path)
        except Exception as error:  # The code of the model may raise any error.
            raise SettingError(_MODEL, _copy_problem(model, error), code="bad-model") from error
        copy_reproducibly(saved_path, copy)
        return copy.read_bytes()


def copy_reproducibly(source_path: Path, path: Path) -> None:
    """Copies a .keras file, which is a ZIP archive, without the times and addresses in it.

    Args:
        source_path: The file.
        path: The path of the copy.
    """
    with zipfile.ZipFile(source_path) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name == _METADATA:
                values = json.loads(content)
                content = json.dumps({k: v for k, v in values.items() if k != _DATE}).encode()
            elif name == _CONFIG:
                content = _number_objects(content)
            target.writestr(zipfile.ZipInfo(name), content)


def _number_objects(config: bytes) -> bytes:
    numbers: dict[bytes, int] = {}

    def replace(match: re.Match[bytes]) -> bytes:
        return match[1] + b"%d" % numbers.setdefault(match[2], len(numbers))

    return _OBJECT_ID.sub(replace, config)


def _copy_problem(model: object, error: Exception) -> str:
    return (
        f"got a {type(model).__name__} that cannot be copied: {reason_of(error)}\n"
        "pass the function that builds it, or define get_config, which returns the arguments of "
        "its constructor"
    )


def _load_file(
    content: bytes,
    name: str,
    path: str,
    objects: Mapping[str, Any] | None = None,
    *,
    is_trusted: bool = False,
) -> tf_keras.Model | keras.Model:
    """Returns the model of a `.keras` file. Must be called in the strategy's scope.

    `path` is the setting that names it. Code in the file runs only if it is trusted. Raises
    `SettingError` if the file cannot be loaded.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            version = str(json.loads(file.read(_METADATA))["keras_version"])
    except (OSError, KeyError, ValueError, TypeError, zipfile.BadZipFile) as error:
        reason = f"{name} is not a .keras file: {first_line(error)}"
        raise SettingError(path, reason, code="bad-model") from error
    load = tf_keras.models.load_model
    if version.startswith("3."):
        import keras

        load = keras.models.load_model
    try:
        with warnings.catch_warnings(), tempfile.TemporaryDirectory() as directory:
            # The state of the optimizer is not used.
            warnings.filterwarnings("ignore", message="Skipping variable loading for optimizer")
            saved_path = Path(directory) / MODEL_FILE
            saved_path.write_bytes(content)
            return load(saved_path, custom_objects=objects, safe_mode=not is_trusted)
    except Exception as error:  # Keras and the code of custom layers may raise any error.
        raise SettingError(
            path, f"{name} cannot be loaded: {_loading_problem(error)}", code="bad-model"
        ) from error


def _loading_problem(error: Exception) -> str:
    text = str(error)
    if "safe_mode" in text or "unsafe_deserialization" in text:
        return (
            "a Lambda layer in it contains Python code, which is not run\n"
            "use a function that builds the model, or a layer of your own instead of Lambda"
        )
    return (
        f"{reason_of(error)}\nif it has classes of your own, use a function that returns "
        "keras.models.load_model(file, custom_objects={'MyLayer': MyLayer})"
    )


def _require_same_inputs(model: tf_keras.Model, inputs: Tensors) -> None:
    """Raises `SettingError` if a functional model has other inputs than the data.

    Keras ignores inputs that the model does not have, and assigns inputs by their order if one has
    another name.
    """
    if not is_functional(model):
        return
    names = sorted(model.input) if isinstance(model.input, dict) else list(model.input_names)
    if isinstance(inputs, list):  # They are assigned in their order.
        inputs = (
            dict(zip(names, inputs, strict=True))
            if len(inputs) == len(names)
            else dict(enumerate(inputs))
        )
    keys = [*map(str, inputs)] if isinstance(inputs, dict) else ["x"]
    if len(names) == len(keys) == 1:
        return
    if {*names} != {*keys}:
        raise SettingError(
            "task.model",
            f"the model has the inputs {', '.join(names)}, but the data has {', '.join(keys)}\n"
            "the keys of the dict of arrays must be the names of the inputs",
            code="model-mismatch",
        )


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
    trained = assets.get_json(VOCABULARIES_FILE, lambda: vocabularies, dict)
    for place, layer in enumerate(layers):
        words = vocabularies[str(place)]
        before = trained.get(str(place))
        if before is not None and words != before:
            raise SettingError(
                "task.model",
                f"the layer {layer.name!r} has another vocabulary than the run was trained with\n"
                "restore the file that the layer was adapted to, or use another --model_dir",
                code="other-assets",
            )


def _all_layers(model: tf_keras.Model) -> list[tf_keras.layers.Layer]:
    if isinstance(model, Keras3Model):
        return all_layers(model, include_self=False)
    layers = [layer for layer in model.submodules if isinstance(layer, tf_keras.layers.Layer)]
    # A lookup layer may be part of another one, such as `TextVectorization`.
    inner = {id(part) for layer in layers for part in layer.submodules}
    return [layer for layer in layers if id(layer) not in inner or layer in model.layers]


def _words(layer: tf_keras.layers.Layer) -> list[str | int]:
    """Returns the vocabulary of a lookup layer as JSON values."""
    return [
        word.decode(errors="backslashreplace")
        if isinstance(word, bytes)
        else word.item()
        if hasattr(word, "item")
        else word
        for word in layer.get_vocabulary()
    ]
