"""Builds the model of a config: calls the function of the user, stacks layers, loads a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras

from orbit_runner.config.serialize import plain_value
from orbit_runner.config.signatures import actual_parameters, argument_problems
from orbit_runner.determinism import keras_3
from orbit_runner.errors import (
    RunnerError,
    SettingError,
    first_line,
    nearest_name_hint,
    shorten,
)
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.keras.config import KerasModelConfig
from orbit_runner.tasks.keras.given_models import (
    CompiledSettings,
    clone_passed_model,
    compiled_settings,
    load_model_file,
)
from orbit_runner.tasks.keras.keras_3 import Keras3Model, is_keras_3_model, keras_3_inputs
from orbit_runner.tasks.keras.keras_names import split_layer
from orbit_runner.tasks.keras.outputs import OWN_METRICS, call_error
from orbit_runner.tasks.keras.passed_objects import KERAS_BACKEND_ADVICE, load_function
from orbit_runner.tf_internals import all_layers, is_functional, undo_compile

if TYPE_CHECKING:
    import keras

    from orbit_runner.utils.types import Tensors

VOCABULARIES_FILE = "layer_vocabularies.json"  # An asset of the run.

_BUILD = "task.model.build"
# Methods of a model that `fit` and `evaluate` of Keras call.
_STEPS = ("train_step", "test_step", "compute_loss", "compute_metrics", "make_train_function")


def build_model(
    config: KerasModelConfig, inputs: Tensors
) -> tuple[tf_keras.Model, CompiledSettings | None]:
    """Returns the model, not compiled, and what `compile` was told, None if it was not called.

    Must be called in the strategy's scope. `inputs` are Keras inputs with the shapes and types of
    the data. Raises `SettingError` if the function cannot be called or returns anything else.
    """
    if config.layers is not None:
        return _build_sequential(config, inputs), None
    with keras_3.configured_scope():
        if config.digest:
            model: Any = clone_passed_model(config.digest, inputs)
        elif config.file:
            model = load_model_file(config)
        else:
            model = _call_function(config)
    _require_no_own_steps(model)
    if is_keras_3_model(model):
        model = _adapt_keras_3_model(model, inputs)
    elif not isinstance(model, tf_keras.Model):
        kind = f"{type(model).__module__}.{type(model).__qualname__}"
        raise SettingError(
            _BUILD, f"{config.build} returns {kind}, expected a Keras model", code="wrong-type"
        )
    try:
        compiled = compiled_settings(model)
    except RunnerError as error:
        raise SettingError("task.model", f"compile(): {error}", code="bad-model") from error
    if compiled is not None and not isinstance(model, Keras3Model):
        undo_compile(model)  # A step would use its loss and its metrics, too.
    _require_same_inputs(model, inputs)
    return model, compiled


def _call_function(config: KerasModelConfig) -> object:
    function = load_function(config.build, _BUILD)
    arguments = plain_value(config.arguments)
    signature = actual_parameters(function)
    if signature is not None:
        for problem in argument_problems(signature, arguments, config.build):
            path = f"task.model.arguments.{problem.path}"
            raise SettingError(path, problem.message, code=problem.code)
    return function(**arguments)


def _adapt_keras_3_model(model: keras.Model, inputs: Tensors) -> Keras3Model:
    """Returns a model of Keras 3 with the interface of one of Keras 2.

    Creates the variables of a model that Keras 3 would create when it is called first.
    """
    if (backend := keras_3.backend()) != "tensorflow":
        raise SettingError(
            _BUILD,
            f"the model is one of Keras 3 with the backend {backend}, expected tensorflow\n"
            f"{KERAS_BACKEND_ADVICE}",
            code="wrong-type",
        )
    if is_functional(model) and model.built:
        return Keras3Model(model)
    try:
        model(keras_3_inputs(inputs))
    except Exception as error:  # The code of the model may raise any error.
        raise call_error(inputs, error) from error
    return Keras3Model(model)


def _require_no_own_steps(model: object) -> None:
    """Raises `SettingError` if a model redefines how `fit` trains it, which would be ignored."""
    for cls in type(model).__mro__:
        if cls.__module__.startswith(("keras.", "tf_keras.", "orbit_runner.")):
            return
        own = [name for name in _STEPS if name in vars(cls)]
        if own:
            raise SettingError(
                _BUILD,
                f"{cls.__qualname__} defines {own[0]}, which a run does not call, because it "
                "trains every model in the same way\nuse task.loss and add_loss; for another way, "
                "such as that of a GAN, write a task of your own (docs/own_task.md)",
                code="bad-model",
            )


def _require_same_inputs(model: tf_keras.Model, inputs: Tensors) -> None:
    """Raises `SettingError` if a functional model has other inputs than the data.

    Keras ignores inputs that the model does not have, and assigns inputs by their order if one has
    another name.
    """
    if not is_functional(model):
        return
    names = sorted(model.input) if isinstance(model.input, dict) else list(model.input_names)
    given = list(inputs) if isinstance(inputs, dict) else ["x"]
    if len(names) == len(given) == 1:
        return
    if missing := [name for name in names if name not in given]:
        unused = [name for name in given if name not in names]
        raise SettingError(
            "task.model",
            f"the model has the inputs {', '.join(names)}, but the data lacks "
            f"{', '.join(missing)}; it has {', '.join(given)}"
            f"{nearest_name_hint(missing[0], unused)}\nthe keys of the dict of arrays must be the "
            "names of the inputs",
            code="model-mismatch",
        )
    if unused := [name for name in given if name not in names]:
        raise SettingError(
            "task.model",
            f"the data has the inputs {', '.join(given)}, but the model lacks "
            f"{', '.join(unused)}; it has {', '.join(names)}\nremove them from the data, or add "
            "them to the model",
            code="model-mismatch",
        )


def _build_sequential(config: KerasModelConfig, inputs: Tensors) -> tf_keras.Model:
    if isinstance(inputs, dict):
        raise SettingError(
            "task.model.layers",
            f"the data has several inputs: {', '.join(inputs)}\nset task.model.build instead",
            code="bad-model",
        )
    shape = tuple(inputs.shape[1:])
    stack = [tf_keras.layers.InputLayer(shape, dtype=inputs.dtype, name="x")]
    model = tf_keras.Sequential(stack)
    for index, layer in enumerate(config.layers or ()):
        name, arguments = split_layer(layer)
        path = f"task.model.layers[{index}]"
        cls = getattr(tf_keras.layers, name, None)
        if cls is None:
            raise SettingError(path, f"unknown layer {name!r}", code="unknown-name")
        try:
            model.add(cls(**plain_value(arguments)))
        except (TypeError, ValueError) as error:
            raise SettingError(path, f"{name}: {first_line(error)}", code="bad-model") from error
    return model


def check_added_metrics(model: tf_keras.Model) -> None:
    """Raises `SettingError` if a model on several replicas calls `add_metric`.

    Keras then computes the result over all replicas in each call, which no branch allows. Must be
    called in the strategy's scope, after the model was called.
    """
    if isinstance(model, Keras3Model) or tf.distribute.get_strategy().num_replicas_in_sync == 1:
        return
    layers = all_layers(model)
    attributes = {id(value) for layer in layers for value in vars(layer).values()}
    for metric in model.metrics:
        if id(metric) not in attributes:
            raise SettingError(
                "task.model",
                f"add_metric({metric.name!r}): {OWN_METRICS}",
                code="not-supported",
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
    trained = assets.get_json(VOCABULARIES_FILE, lambda: vocabularies)
    for place, layer in enumerate(layers):
        words = vocabularies[str(place)]
        before = trained.get(str(place))
        if before is not None and words != before:
            raise SettingError(
                "task.model",
                f"the layer {layer.name!r} has another vocabulary than the run was trained with: "
                f"{_describe_difference(words, before)}\n"
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


def _describe_difference(words: list[str | int], trained: list[str | int]) -> str:
    for place, (word, before) in enumerate(zip(words, trained, strict=False)):
        if word != before:
            return f"entry {place} is {shorten(repr(word))}, previously {shorten(repr(before))}"
    return f"{len(words):,} entries, previously {len(trained):,}"
