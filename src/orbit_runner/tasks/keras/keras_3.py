"""Models of Keras 3, which the rest of this package uses like models of Keras 2.

The optimizers of Model Garden, the checkpoints, the strategies and the exports work with variables
of TensorFlow. Those that Keras 3 creates are such variables, so a model of Keras 3 needs nothing
but the interface of one of Keras 2.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras

from orbit_runner.tf_internals import track
from orbit_runner.utils.types import Tensors

if TYPE_CHECKING:
    import keras


def is_keras_3_model(value: object) -> bool:
    """Returns whether a value is a model of Keras 3."""
    module = sys.modules.get("keras")
    return isinstance(value, getattr(module, "Model", ()))


def base_classes(module: str, name: str) -> tuple[type, ...]:
    """Returns a class of Keras 2, such as `Loss` of `losses`, and that of Keras 3 if imported."""
    packages = [tf_keras, *([sys.modules["keras"]] if "keras" in sys.modules else [])]
    return tuple(getattr(getattr(package, module), name) for package in packages)


class Keras3Model(tf_keras.Model):
    """A model of Keras 3 with the interface of one of Keras 2.

    Attributes:
        keras_3_model: The model, which must have all its variables.
    """

    def __init__(self, model: keras.Model) -> None:
        # By assignment, Keras 2 would take it for a layer of its own.
        self.__dict__["keras_3_model"] = model
        # The model casts its inputs itself.
        super().__init__(name=model.name, dtype="float32", autocast=False)
        # Those of the outputs are names that nobody chose.
        self.__dict__["input_names"] = [
            tensor.name for tensor in getattr(model, "inputs", None) or ()
        ]
        for name, variable in _variables_by_name(model).items():
            track(self, variable, name)
        self.built = True

    @tf.autograph.experimental.do_not_convert  # Keras 3 never converts the code of a model.
    def call(self, inputs: Tensors, training: bool | None = None) -> Tensors:
        """Returns the outputs of the model."""
        return self.keras_3_model(inputs, training=bool(training))

    @property
    def trainable_weights(self) -> list[tf.Variable]:
        """The variables that are trained."""
        return [weight.value for weight in self.keras_3_model.trainable_weights]

    @property
    def non_trainable_weights(self) -> list[tf.Variable]:
        """The other variables, without the states of random generators, which have no effect."""
        return [weight.value for weight in self.keras_3_model.non_trainable_weights]

    @property
    def weights(self) -> list[tf.Variable]:
        """All variables, without the states of random generators."""
        return [*self.trainable_weights, *self.non_trainable_weights]

    @property
    def trainable(self) -> bool:
        """Whether the model is trained."""
        return bool(self.keras_3_model.trainable)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self.keras_3_model.trainable = value

    @property
    def losses(self) -> list[tf.Tensor]:
        """The losses that layers and regularizers added in the last call."""
        return list(self.keras_3_model.losses)

    @property
    def layers(self) -> list[Any]:
        """The layers of the model, which are of Keras 3."""
        return list(self.keras_3_model.layers)

    @property
    def input(self) -> Tensors:
        """The symbolic inputs of a functional model, of Keras 3."""
        import keras

        model = self.keras_3_model
        return model.inputs[0] if isinstance(model, keras.Sequential) else model.input


def keras_3_inputs(inputs: Tensors) -> Tensors:
    """Returns symbolic inputs of Keras 3 with the shapes and types of those of Keras 2."""
    import keras

    return tf.nest.map_structure(
        lambda tensor: keras.Input(tensor.shape[1:], dtype=tensor.dtype.name), inputs
    )


def _variables_by_name(model: keras.Model) -> Mapping[str, tf.Variable]:
    """Returns the variables by path; the paths of those with the same path are numbered."""
    variables: dict[str, tf.Variable] = {}
    for weight in model.weights:
        name = weight.path.removeprefix(f"{model.name}/")
        number = sum(known.partition("#")[0] == name for known in variables)
        variables[f"{name}#{number}" if number else name] = weight.value
    return variables
