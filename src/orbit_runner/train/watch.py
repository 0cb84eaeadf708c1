"""Measures gradients, weights and updates at some of the steps, inside the graph of the step.

A measured step is traced separately and runs as a loop of its own, so the graph of all other steps
is the same as without measurements.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.metric_records import UPDATE_RATIO, WATCH
from orbit_runner.state.learning_rates import Gradients, seen_gradients_scope
from orbit_runner.tasks.layer_names import group_names
from orbit_runner.train.loops.loop_pieces import Loop, Stage

if TYPE_CHECKING:
    from orbit_runner.state.learning_rates import Optimizer
    from orbit_runner.train.loops.loop_pieces import BatchSource, Results
    from orbit_runner.utils.types import Tensors


GRADIENT_NORM = f"{WATCH}gradient_norm"
WEIGHT_NORM = f"{WATCH}weight_norm"
NON_FINITE = f"{WATCH}non_finite_gradients"


class Watch(Stage):
    """Measures the steps whose number is a multiple of an interval.

    Must be created in the strategy's scope.
    """

    def __init__(
        self,
        interval: int,
        variables: Sequence[tf.Variable],
        optimizer: Optimizer,
        replicas: int,  # whose gradients have to be summed
        make_loop: Callable[[], Loop],  # returns a loop that is traced when it is first called
    ) -> None:
        self._interval = interval
        self._make_loop = make_loop
        # A loop, and the loop that is traced for its measured steps.
        self._loops: tuple[Loop, Loop] | None = None
        self._optimizer = optimizer
        self._replicas = replicas
        self._weights = [variable for variable in variables if variable.dtype.is_floating]
        self._layers = layers_by_variable([variable.name for variable in self._weights])
        ratios = dict.fromkeys(f"{UPDATE_RATIO}{layer}" for layer in self._layers.values())
        self.names = (GRADIENT_NORM, WEIGHT_NORM, NON_FINITE, *ratios)
        # Each replica computes the same values and stores them without communication.
        self._values = tf.Variable(
            tf.zeros([len(self.names)]),
            trainable=False,
            name="watch",
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )
        self.is_measuring = False  # whether the step that is traced, or run eagerly, is measured
        self._tracing = _Tracing()

    def measures(self, step: int) -> bool:
        """Returns whether the step that ends at a global step is measured."""
        return step > 0 and step % self._interval == 0

    def piece_length(self, step: int, steps: int) -> int:
        """Returns how many of the next `steps` steps can run in one loop, from a global step on."""
        remaining = self._interval - step % self._interval
        return 1 if remaining == 1 else min(steps, remaining - 1)

    def wrap_loop(self, loop: Loop, step: int) -> Loop:
        """Returns what runs a piece; a measured step is a piece of its own."""
        if not self.measures(step + 1):
            return loop
        if self._loops is None or self._loops[0] is not loop:
            self._loops = loop, self._make_loop()
        measured = self._loops[1]

        def run(iterator: BatchSource, first: tf.Tensor, steps: tf.Tensor) -> None:
            self.is_measuring = True
            try:
                with seen_gradients_scope(self._optimizer, self._see):
                    measured(iterator, first, steps)
            finally:
                self.is_measuring = False

        return run

    def _see(self, pairs: Gradients) -> None:
        """Stores the gradients of a replica before the optimizer clips them.

        They are unscaled already: a task that scales its loss divides them before it applies them.
        """
        self._tracing.gradients += [gradient for gradient, _ in pairs]

    def run_measured_step(
        self, step: Callable[[Tensors], dict[str, tf.Tensor]], batch: Tensors
    ) -> dict[str, tf.Tensor]:
        """Runs a step on a replica, stores what it measures and returns the step's result.

        Raises RunnerError if the step does not call `apply_gradients` of the optimizer.
        """
        before = [tf.convert_to_tensor(weight) for weight in self._weights]
        self._tracing.gradients = []
        result = step(batch)
        gradients = self._tracing.gradients
        self._tracing.gradients = []
        after = [tf.convert_to_tensor(weight) for weight in self._weights]
        if not gradients:
            # With one argument, so that AutoGraph can raise it again.
            raise RunnerError(
                "trainer.watch_interval is not supported: this task does not pass its gradients to "
                "optimizer.apply_gradients\nset trainer.watch_interval to 0",
                code="not-supported",
            )
        values = dict([*self._gradient_values(gradients), *self._weight_values(before, after)])
        self._values.assign(tf.stack([values[name] for name in self.names]))
        return result

    def _gradient_values(
        self, gradients: Sequence[tf.Tensor | tf.IndexedSlices]
    ) -> Iterator[tuple[str, tf.Tensor]]:
        """Yields the norm of the gradient of the whole batch, and the non-finite share of it."""
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        if self._replicas > 1:
            context = tf.distribute.get_replica_context()
            dense = context.all_reduce(tf.distribute.ReduceOp.SUM, dense)
        finite = [
            tf.reduce_sum(tf.cast(tf.math.is_finite(gradient), tf.float32)) for gradient in dense
        ]
        size = tf.add_n([tf.cast(tf.size(gradient), tf.float32) for gradient in dense])
        yield GRADIENT_NORM, tf.sqrt(_sum_of_squares(dense))
        yield NON_FINITE, 1.0 - tf.add_n(finite) / size

    def _weight_values(
        self, before: Sequence[tf.Tensor], after: Sequence[tf.Tensor]
    ) -> Iterator[tuple[str, tf.Tensor]]:
        """Yields the norm of the weights before the step, and for each layer how far they moved."""
        yield WEIGHT_NORM, tf.sqrt(_sum_of_squares(before))
        layers: dict[str, list[tuple[tf.Tensor, tf.Tensor]]] = {}
        for weight, old, new in zip(self._weights, before, after, strict=True):
            layers.setdefault(self._layers[weight.name], []).append((old, new - old))
        for layer, pairs in layers.items():
            old, updates = zip(*pairs, strict=True)
            squares = tf.math.divide_no_nan(_sum_of_squares(updates), _sum_of_squares(old))
            yield f"{UPDATE_RATIO}{layer}", tf.sqrt(squares)

    def values(self) -> tf.Tensor:
        """Returns the values of the last measured step in the order of `names`, float32."""
        return tf.convert_to_tensor(self._values)

    def logs(self, step: int) -> Results:
        """Returns the values by name if `step` has just been measured, else {}."""
        if not self.measures(step):
            return {}
        return dict(zip(self.names, self.values().numpy(), strict=True))


class _Tracing(threading.local):
    """Per thread, because `MirroredStrategy` traces each replica in a separate thread."""

    gradients: list[tf.Tensor | tf.IndexedSlices]


def _sum_of_squares(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.add_n([tf.reduce_sum(tf.square(tf.cast(tensor, tf.float32))) for tensor in tensors])


MAX_LAYERS = 32


def layers_by_variable(names: Sequence[str]) -> dict[str, str]:
    """Returns the layer of each variable, by the names of the variables.

    The layer is the name without its last part: `block/dense` for `block/dense/kernel:0`. If there
    are more than `MAX_LAYERS` layers, some of them count as one; see `group_names`.
    """
    variables = [name.partition(":")[0] for name in names]
    layers = [name.rpartition("/")[0] or name for name in variables]
    return dict(zip(names, group_names(layers, MAX_LAYERS), strict=True))
