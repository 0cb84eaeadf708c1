"""Models and optimizers of Keras 3 with the interface of Keras 2, which this package uses.

The checkpoints, the strategies and the exports work with variables of TensorFlow. Those that Keras
3 creates are such variables.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras

from orbit_runner.errors import SettingError
from orbit_runner.tf_internals import (
    Trackable,
    all_layers,
    inner_optimizers,
    keras_3_update_scope,
    set_constraint,
    track,
)
from orbit_runner.utils.types import Tensors

if TYPE_CHECKING:
    import keras


def is_keras_3_model(value: object) -> bool:
    """Returns whether a value is a model of Keras 3."""
    module = sys.modules.get("keras")
    return isinstance(value, getattr(module, "Model", ()))


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
        for name, variable in _variables_by_name([*model.weights, *owned_states(model)]).items():
            track(self, variable, name.removeprefix(f"{model.name}/"))
        for weight in model.trainable_weights:
            if weight.constraint is not None:  # Optimizers ask the variable of TensorFlow.
                set_constraint(weight.value, weight.constraint)
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


def owned_states(model: keras.Model) -> list[keras.Variable]:
    """Returns the states of layers that are not among the weights, such as those of an RNN."""
    import keras

    known = {id(variable) for variable in model.variables}
    states: list[keras.Variable] = []
    for layer in all_layers(model):
        for attribute in vars(layer).values():
            values = attribute if isinstance(attribute, (list, tuple)) else [attribute]
            for value in values:
                if isinstance(value, keras.Variable) and id(value) not in known:
                    known.add(id(value))
                    states.append(value)
    return states


class Keras3Optimizer(Trackable):
    """An optimizer of Keras 3 with the interface of one of Keras 2.

    Attributes:
        keras_3_optimizer: The optimizer.
    """

    def __init__(self, optimizer: keras.Optimizer, weights: Sequence[keras.Variable]) -> None:
        self.keras_3_optimizer = optimizer
        self._weights = {id(weight.value): weight for weight in weights}  # by that of TensorFlow

    @property
    def kind(self) -> str:
        """The class of the optimizer, for messages."""
        return f"{type(self.keras_3_optimizer).__name__} of Keras 3"

    @property
    def name(self) -> str:
        """The name of the optimizer."""
        return f"keras_{self.keras_3_optimizer.name}"

    def build(self, variables: Sequence[tf.Variable]) -> None:
        """Creates the variables of the optimizer. Must be called in the strategy's scope.

        Raises `SettingError` for averaged weights that Keras 3 cannot copy on several replicas.
        """
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        if replicas > 1 and self.keras_3_optimizer.ema_overwrite_frequency:
            raise SettingError(
                "task.optimizer",
                "got ema_overwrite_frequency, which fails in Keras 3 on several replicas\n"
                "allowed: one replica; or use trainer.optimizer_config.ema instead",
                code="not-supported",
            )
        if not self.keras_3_optimizer.built:
            self.keras_3_optimizer.build([self._weights[id(variable)] for variable in variables])
        for name, variable in _variables_by_name(self.keras_3_optimizer.variables).items():
            track(self, variable, name)

    @property
    def variables(self) -> list[tf.Variable]:
        """All variables."""
        return [variable.value for variable in self.keras_3_optimizer.variables]

    @property
    def iterations(self) -> tf.Variable:
        """The number of updates."""
        return self.keras_3_optimizer.iterations.value

    @property
    def optimizers(self) -> list[Keras3Optimizer] | None:
        """The parts of a `MultiOptimizer`; None for others."""
        parts = inner_optimizers(self.keras_3_optimizer)
        return [Keras3Optimizer(part, [*self._weights.values()]) for part in parts] or None

    @property
    def names(self) -> list[str]:
        """The names of these parts in records."""
        parts = inner_optimizers(self.keras_3_optimizer)
        return [f"{type(part).__name__}_{number}" for number, part in enumerate(parts)]

    @property
    def learning_rate(self) -> tf.Tensor:
        """The learning rate of the next update, a variable or a tensor."""
        rate = self.keras_3_optimizer.learning_rate
        return getattr(rate, "value", rate)

    def scale_loss(self, loss: tf.Tensor) -> tf.Tensor:
        """Returns the loss whose gradients `apply_gradients` expects."""
        return self.keras_3_optimizer.scale_loss(loss)

    def apply_gradients(
        self,
        grads_and_vars: Sequence[tuple[tf.Tensor, tf.Variable]],
        experimental_aggregate_gradients: bool = True,
    ) -> None:
        """Updates the variables. Gradients that are summed already are not aggregated again."""
        if not grads_and_vars:  # Keras 3 fails, and Keras 2 does nothing.
            return
        pairs = [(grad, self._weights[id(weight)]) for grad, weight in grads_and_vars]
        with keras_3_update_scope(self.keras_3_optimizer, sums=experimental_aggregate_gradients):
            self.keras_3_optimizer.apply_gradients(pairs)


def _variables_by_name(variables: Sequence[keras.Variable]) -> Mapping[str, tf.Variable]:
    """Returns variables by path; the paths of those with the same path are numbered."""
    named: dict[str, tf.Variable] = {}
    for variable in variables:
        name = variable.path
        number = sum(known.partition("#")[0] == name for known in named)
        named[f"{name}#{number}" if number else name] = variable.value
    return named
