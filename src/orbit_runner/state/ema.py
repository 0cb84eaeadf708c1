"""A moving average of the weights, kept separately from the optimizer.

It therefore works with every optimizer and with loss scaling. An evaluation with the average
restores exactly the same weights afterwards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import tensorflow as tf
import tf_keras

from orbit_runner.config.schema.optimizers import Ema
from orbit_runner.distribute.process_group import is_asynchronous
from orbit_runner.utils.variables import kept_values_scope, replica_parts, variable_name


class WeightAverage(tf.Module):
    """Moving averages of a model's weights.

    They are initialized to the weights. Must be created in the scope of the strategy in which the
    model was built.
    """

    is_in_optimizer = False  # Whether the averages are variables of the optimizer.

    def __init__(
        self, config: Ema, model: tf_keras.Model, strategy: tf.distribute.Strategy
    ) -> None:
        super().__init__(name="ema")
        self._config = config
        self._strategy = strategy
        tracked = model.trainable_variables if config.trainable_weights_only else model.variables
        weights = [variable for variable in tracked if variable.dtype.is_floating]
        # In a function, because a checkpoint should find the weights only in the model.
        self._weights = lambda: weights
        self.averages = [
            tf.Variable(weight, trainable=False, name=f"{variable_name(weight)}/average")
            for weight in weights
        ]

    def pairs(self) -> Iterator[tuple[tf.Variable, tf.Variable]]:
        """Yields each weight with its average."""
        yield from zip(self._weights(), self.averages, strict=True)

    def reset(self) -> None:
        """Sets the averages to the current weights."""
        for weight, average in self.pairs():
            average.assign(weight.read_value())

    def update(self, step: tf.Tensor) -> None:
        """Moves the averages towards the weights.

        Must be called in a graph, in the cross-replica context. `step` is the number of updates of
        the weights so far, int64 scalar.
        """
        share = 1.0 - self._decay(tf.cast(step, tf.float32))
        is_async = is_asynchronous(self._strategy)
        for weight, average in self.pairs():
            is_per_replica = weight.synchronization == tf.VariableSynchronization.ON_READ
            value = weight.read_value() if is_per_replica else weight
            if is_async:
                # Copied through the worker, because parameter servers cannot reach each other.
                value = tf.identity(weight)
            self._strategy.extended.update(average, _move, args=(value, share), group=False)

    def _decay(self, step: tf.Tensor) -> tf.Tensor:
        config = self._config
        decay = tf.constant(config.average_decay)
        if config.dynamic_decay:
            since = step - float(config.start_step)
            decay = tf.minimum(decay, (1.0 + since) / (10.0 + since))
        return tf.where(step < float(config.start_step), 0.0, decay)

    def apply(self) -> None:
        """Replaces the model's weights with their averages, for good."""
        for weight, average in self.pairs():
            value = average.numpy()
            for part in replica_parts(weight):
                part.assign(value)

    @contextlib.contextmanager
    def applied_scope(self) -> Iterator[None]:
        """Replaces the model's weights with their averages inside a `with` block."""
        with kept_values_scope([weight for weight, _ in self.pairs()]):
            self.apply()
            yield


class OptimizerAverage(WeightAverage):
    """The averages that an optimizer of Keras keeps itself (`use_ema`)."""

    is_in_optimizer = True

    def __init__(self, averages: Sequence[tf.Variable], model: tf_keras.Model) -> None:
        tf.Module.__init__(self, name="ema")
        weights = list(model.trainable_variables)
        self._weights = lambda: weights
        self.averages = list(averages)

    def update(self, step: tf.Tensor) -> None:
        """Does nothing, because the optimizer updates the averages."""


def _move(average: tf.Variable, value: tf.Tensor, share: tf.Tensor) -> tf.Operation:
    return average.assign_sub(tf.cast(share, average.dtype) * (average - value))
