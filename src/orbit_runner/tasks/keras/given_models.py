"""Models as they are: objects that a Python program passed, files, and what `compile` was told."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tf_keras

from orbit_runner.distribute.sharded_variables import is_variable
from orbit_runner.errors import RunnerError, SettingError, first_line
from orbit_runner.storage.staging import local_file
from orbit_runner.tasks.keras.by_output import losses_by_output
from orbit_runner.tasks.keras.keras_3 import is_keras_3_model, keras_3_inputs
from orbit_runner.tasks.keras.keras_names import split_item
from orbit_runner.tasks.keras.keras_objects import (
    is_same_optimizer,
    loss_settings,
    optimizer_setting,
    output_metric_settings,
)
from orbit_runner.tasks.keras.outputs import call_error, reason_of
from orbit_runner.tasks.keras.passed_objects import MODELS, load_function
from orbit_runner.tf_internals import all_layers, compile_arguments, is_compiled, is_functional

if TYPE_CHECKING:
    import keras

    from orbit_runner.config.schema.optimizers import Optimization
    from orbit_runner.tasks.keras.config import KerasConfig, KerasModelConfig
    from orbit_runner.utils.types import Tensors

_MODEL = "task.model"
_FILE = "task.model.file"
_METADATA = "metadata.json"
# Keras writes the addresses of objects that are used several times.
_OBJECT_ID = re.compile(r'"shared_object_id": \d+')


@dataclasses.dataclass(frozen=True)
class CompiledSettings:
    """What `compile` of a model was told, as settings of the task.

    Attributes:
        loss: The setting `loss`; "" if the model has none.
        loss_weights: The setting `loss_weights`.
        metrics: The setting `metrics`.
        optimizer: The name of the class of the optimizer; "" if the model has none.
        optimizer_config: The section `trainer.optimizer_config` of this optimizer; None if no
            setting describes it.
    """

    loss: Any = ""
    loss_weights: Any = ()
    metrics: Any = ()
    optimizer: str = ""
    optimizer_config: Mapping[str, object] | None = None

    def complete(self, config: KerasConfig) -> KerasConfig:
        """Returns the config with these settings in place of those that it does not set."""
        return config.replace(
            loss=config.loss or self.loss,
            loss_weights=config.loss_weights or self.loss_weights,
            metrics=config.metrics or self.metrics,
        )

    def has_other_optimizer(self, config: Optimization) -> bool:
        """Returns whether the optimizer of a config is another one, or has another rate."""
        if not self.optimizer:
            return False
        setting = self.optimizer_config
        return setting is None or not is_same_optimizer(setting, config)

    @property
    def ignores_classes(self) -> bool:
        """Whether a loss ignores a class number, which is then no label."""
        losses = losses_by_output(self.loss).values.values()
        return any(item and "ignore_class" in split_item(item)[1] for item in losses)


def compiled_settings(model: tf_keras.Model | keras.Model) -> CompiledSettings | None:
    """Returns what `compile` of a model was told, None if it was not called.

    Raises `RunnerError` if no setting describes it.
    """
    if not is_compiled(model):
        return None
    arguments = compile_arguments(model)
    if arguments.get("weighted_metrics"):
        raise RunnerError(
            "weighted_metrics: metrics are not weighted here\npass them as metrics of compile()",
            code="bad-model",
        )
    weights = arguments.get("loss_weights")
    if isinstance(weights, (int, float)):
        weights = [weights]
    optimizer = getattr(getattr(model, "keras_3_model", model), "optimizer", None)
    return CompiledSettings(
        loss=loss_settings(arguments.get("loss") or ""),
        loss_weights=dict(weights) if isinstance(weights, Mapping) else tuple(weights or ()),
        metrics=output_metric_settings(arguments.get("metrics") or ()),
        optimizer="" if optimizer is None else type(optimizer).__name__,
        optimizer_config=None if optimizer is None else _described_optimizer(optimizer),
    )


def _described_optimizer(optimizer: object) -> Mapping[str, object] | None:
    try:
        return optimizer_setting(optimizer)
    except RunnerError:
        return None


def register_model(model: tf_keras.Model | keras.Model) -> str:
    """Registers a model for runs in this process. Returns the digest that names it in a config.

    The digest is that of its layers and of its weights, if it has them already.
    """
    try:
        layers = json.dumps(model.get_config(), sort_keys=True, default=_stable_text)
    except Exception as error:  # The code of the model may raise any error.
        raise RunnerError(_cloning_problem(model, error), code="bad-model") from error
    hashed = hashlib.sha256(_OBJECT_ID.sub("", layers).encode())
    hashed.update(type(model).__qualname__.encode())
    for weight in _weights_of(model):
        value = np.ascontiguousarray(weight.numpy())
        hashed.update(f"{value.dtype} {value.shape}".encode())
        hashed.update(value.tobytes())
    digest = hashed.hexdigest()
    MODELS[digest] = model
    return digest


def _stable_text(value: object) -> str:
    """Returns a text for what JSON cannot represent, without its address."""
    return str(value) if isinstance(value, np.generic) else type(value).__qualname__


def clone_passed_model(digest: str, inputs: Tensors) -> tf_keras.Model | keras.Model:
    """Returns a copy of a model that was passed, with its weights, if it has them.

    Must be called in the strategy's scope. Raises `SettingError` if it cannot be copied.
    """
    if digest not in MODELS:
        raise SettingError(
            _MODEL,
            "the model was passed to orbit_runner.run, and this process does not have it\n"
            "run the Python program again; it resumes the run. To export it, set "
            "trainer.export_subdir there",
            code="not-repeatable",
        )
    model = MODELS[digest]
    is_keras_3 = is_keras_3_model(model)
    try:
        if is_keras_3:
            import keras

            copy = keras.models.clone_model(model)
        else:
            copy = tf_keras.models.clone_model(model)
    except Exception as error:  # The code of the model may raise any error.
        raise SettingError(_MODEL, _cloning_problem(model, error), code="bad-model") from error
    _copy_vocabularies(model, copy)
    weights = _weights_of(model)
    if weights and not (is_functional(copy) and copy.built):
        try:
            copy(keras_3_inputs(inputs) if is_keras_3 else inputs)
        except Exception as error:
            raise call_error(inputs, error) from error
    if weights:
        _copy_weights(model, weights, _weights_of(copy))
    return copy


def _cloning_problem(model: object, error: Exception) -> str:
    return (
        f"got a {type(model).__name__} that cannot be cloned: {reason_of(error)}\n"
        "pass the function that builds it, or define get_config, which returns the arguments of "
        "its constructor"
    )


def _weights_of(model: tf_keras.Model | keras.Model) -> list[Any]:
    """Returns the variables of a model; [] if it has not created them yet."""
    try:
        weights = model.weights
    except ValueError:  # Keras 2 raises it for a model that was never called.
        return []
    if is_keras_3_model(model):
        return [weight.value for weight in weights]
    return [weight for weight in weights if is_variable(weight)]


def _copy_weights(model: object, weights: Sequence[Any], copies: Sequence[Any]) -> None:
    shapes = [[tuple(weight.shape) for weight in side] for side in (weights, copies)]
    if shapes[0] != shapes[1]:
        error = ValueError(f"its copy has {len(copies)} other weights, not {len(weights)}")
        raise SettingError(_MODEL, _cloning_problem(model, error), code="bad-model")
    for weight, copy in zip(weights, copies, strict=True):
        copy.assign(weight.numpy())


def _copy_vocabularies(
    model: tf_keras.Model | keras.Model, copy: tf_keras.Model | keras.Model
) -> None:
    """Lets lookup layers of the copy have the vocabularies that those of the model adapted to."""
    pairs = zip(all_layers(model), all_layers(copy), strict=False)
    for layer, other in pairs:
        if hasattr(layer, "set_vocabulary") and layer.get_vocabulary() != other.get_vocabulary():
            other.set_vocabulary(layer.get_vocabulary(include_special_tokens=False))


def load_model_file(config: KerasModelConfig) -> tf_keras.Model | keras.Model:
    """Returns the model of a `.keras` file. Must be called in the strategy's scope.

    Raises `SettingError` if it cannot be loaded.
    """
    objects = {
        name: load_function(str(reference), f"{_MODEL}.custom_objects.{name}")
        for name, reference in config.custom_objects.items()
    }
    path = local_file(config.file, _FILE)
    try:
        with zipfile.ZipFile(path) as file:
            version = str(json.loads(file.read(_METADATA))["keras_version"])
    except (OSError, KeyError, ValueError, TypeError, zipfile.BadZipFile) as error:
        reason = f"{path} is not a .keras file: {first_line(error)}"
        raise SettingError(_FILE, reason, code="bad-model") from error
    try:
        with warnings.catch_warnings():  # The state of the optimizer is not used.
            warnings.filterwarnings("ignore", message="Skipping variable loading for optimizer")
            if version.startswith("3."):
                import keras

                return keras.models.load_model(path, custom_objects=objects, safe_mode=True)
            return tf_keras.models.load_model(path, custom_objects=objects, safe_mode=True)
    except Exception as error:  # Keras and the code of custom layers may raise any error.
        raise SettingError(
            _FILE, f"{path} cannot be loaded: {_loading_problem(error)}", code="bad-model"
        ) from error


def _loading_problem(error: Exception) -> str:
    text = str(error)
    if "safe_mode" in text or "unsafe_deserialization" in text:
        return (
            "a Lambda layer in it contains Python code, which is not run\n"
            "use a function that builds the model, or a layer of your own instead of Lambda"
        )
    return (
        f"{reason_of(error)}\nname classes of your own: "
        "custom_objects: {MyLayer: my_package.layers:MyLayer}"
    )
