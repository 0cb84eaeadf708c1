"""A moving average of the weights, kept separately from the optimizer.

It therefore works with every optimizer and with loss scaling. An evaluation with the average
restores exactly the same weights afterwards. `AveragingOptimizer` saves the average in Model
Garden's format.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf
import tf_keras

from orbit_runner.config.schema.optimizers import Ema
from orbit_runner.distribute.process_group import is_asynchronous
from orbit_runner.tf_internals import Trackable, track
from orbit_runner.utils.variables import variable_name

if TYPE_CHECKING:
    from orbit_runner.state.learning_rates import Optimizer


class WeightAverage(tf.Module):
    """Moving averages of a model's weights; `AveragingOptimizer` adds them to a checkpoint.

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

    def reset(self, kept: Collection[tf.Variable] = ()) -> None:
        """Sets the averages, except those in `kept`, to the current weights."""
        kept_ids = {id(average) for average in kept}
        for weight, average in self.pairs():
            if id(average) not in kept_ids:
                average.assign(weight.read_value())

    def update(self, step: tf.Tensor) -> None:
        """Moves the averages towards the weights.

        Must be called in a graph, in the cross-replica context. `step` is the number of updates of
        the weights so far, int64 scalar.
        """
        share = 1.0 - self._decay(tf.cast(step, tf.float32))
        is_async = is_asynchronous(self._strategy)
        for weight, average in self.pairs():
            value = weight.read_value() if _is_per_replica(weight) else weight
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
            for part in _parts(weight):
                part.assign(value)

    @contextlib.contextmanager
    def applied_scope(self) -> Iterator[None]:
        """Replaces the model's weights with their averages inside a `with` block."""
        stored = list(self.pairs())
        kept = [[part.numpy() for part in _parts(weight)] for weight, _ in stored]
        self.apply()
        try:
            yield
        finally:
            for values, (weight, _) in zip(kept, stored, strict=True):
                for value, part in zip(values, _parts(weight), strict=True):
                    part.assign(value)


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


def _is_per_replica(variable: tf.Variable) -> bool:
    return variable.synchronization == tf.VariableSynchronization.ON_READ


def _parts(variable: tf.Variable) -> tuple[tf.Variable, ...]:
    """Returns the variable of each replica, so that each is restored to exactly the same bits."""
    return tuple(getattr(variable, "values", (variable,)))


INNER_OPTIMIZER = "ema_base_optimizer"
_SLOT = "average"
# The item that Model Garden's runner does not save.
RECOVERIES = "recoveries"


class AveragingOptimizer(Trackable):
    """Replaces Model Garden's averaging optimizer in a checkpoint; it does not train.

    The averages are its slots, which TensorFlow requests by name. In a run without an average,
    `average` is None; the optimizer can then be restored from the checkpoint of a run with one.
    """

    def __init__(self, optimizer: Optimizer, average: WeightAverage | None) -> None:
        track(self, optimizer, INNER_OPTIMIZER)
        pairs = average.pairs() if average is not None else ()
        self._averages = {id(weight): averaged for weight, averaged in pairs}

    def get_slot_names(self) -> list[str]:
        """Returns the names of the slots."""
        return [_SLOT]

    def get_slot(self, variable: tf.Variable, name: str) -> tf.Variable | None:
        """Returns the average of a weight, or None if it has no average."""
        return self._averages.get(id(variable)) if name == _SLOT else None

    def _create_or_restore_slot_variable(
        self,
        slot_variable_position: object,
        slot_name: str,
        variable: tf.Variable,
        **kwargs: object,
    ) -> tf.Variable | None:
        # TensorFlow calls this to restore a slot. Some releases restore the slot through the given
        # position, others restore the returned variable.
        del slot_variable_position, kwargs
        return self.get_slot(variable, slot_name)
