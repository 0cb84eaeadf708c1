"""Measures gradients, weights and updates at some of the steps, inside the graph of the step.

A measured step is traced separately and runs as a loop of its own, so the graph of all other steps
is the same as without measurements.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.metric_records import UPDATE_RATIO, WATCH
from orbit_runner.state.learning_rates import OptimizerProxy
from orbit_runner.train.loops.loop_pieces import Loop, Stage

if TYPE_CHECKING:
    from orbit_runner.state.learning_rates import AppliesGradients, GradsAndVars
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
        replicas: int,  # whose gradients have to be summed
        make_loop: Callable[[], Loop],  # returns a loop that is traced when it is first called
    ) -> None:
        self._interval = interval
        self._make_loop = make_loop
        # A loop, and the loop that is traced for its measured steps.
        self._loops: tuple[Loop, Loop] | None = None
        self._replicas = replicas
        weights = [variable for variable in variables if variable.dtype.is_floating]
        # In a function, because a checkpoint should find the weights only in the model.
        self._weights = lambda: weights
        self._layers = layers_by_variable([variable.name for variable in weights])
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
        left = self._interval - step % self._interval
        return 1 if left == 1 else min(steps, left - 1)

    def wrap_loop(self, loop: Loop, step: int) -> Loop:
        """Returns what runs a piece; a measured step is a piece of its own."""
        if not self.measures(step + 1):
            return loop
        if self._loops is None or self._loops[0] is not loop:
            self._loops = loop, self._make_loop()
        measured = self._loops[1]

        def run(iterator: BatchSource, first: tf.Tensor, steps: tf.Tensor) -> None:
            with self._measuring_scope():
                measured(iterator, first, steps)

        return run

    @contextlib.contextmanager
    def _measuring_scope(self) -> Iterator[None]:
        self.is_measuring = True
        try:
            yield
        finally:
            self.is_measuring = False

    def wrap_optimizer(self, optimizer: AppliesGradients) -> AppliesGradients:
        """Returns an object that behaves like an optimizer, and shows its gradients."""
        return _WatchedOptimizer(optimizer, self._tracing)

    def run_measured_step(
        self, step: Callable[[Tensors], dict[str, tf.Tensor]], batch: Tensors
    ) -> dict[str, tf.Tensor]:
        """Runs a step on a replica, stores what it measures and returns the step's result.

        Raises RunnerError if the step does not call `apply_gradients` of the wrapped optimizer.
        """
        before = [tf.convert_to_tensor(weight) for weight in self._weights()]
        self._tracing.gradients = []
        try:
            result = step(batch)
            gradients = self._tracing.gradients
        finally:
            self._tracing.gradients = None
        after = [tf.convert_to_tensor(weight) for weight in self._weights()]
        if not gradients:
            # With one argument, so that AutoGraph can raise it again.
            raise RunnerError(
                "trainer.watch_interval is not supported: this task does not pass its gradients to "
                "optimizer.apply_gradients\nset trainer.watch_interval to 0",
                code="not-supported",
            )
        norm, non_finite = self._gradient_values(gradients)
        ratios = self._update_ratios(before, after)
        # In the order of the names.
        values = [norm, tf.sqrt(_sum_of_squares(before)), non_finite, *ratios]
        self._values.assign(tf.stack(values))
        return result

    def _gradient_values(
        self, gradients: Sequence[tf.Tensor | tf.IndexedSlices]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the norm of the gradient of the whole batch, and the non-finite share of it."""
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        if self._replicas > 1:
            context = tf.distribute.get_replica_context()
            dense = context.all_reduce(tf.distribute.ReduceOp.SUM, dense)
        finite = [
            tf.reduce_sum(tf.cast(tf.math.is_finite(gradient), tf.float32)) for gradient in dense
        ]
        size = tf.add_n([tf.cast(tf.size(gradient), tf.float32) for gradient in dense])
        return tf.sqrt(_sum_of_squares(dense)), 1.0 - tf.add_n(finite) / size

    def _update_ratios(
        self, before: Sequence[tf.Tensor], after: Sequence[tf.Tensor]
    ) -> list[tf.Tensor]:
        """Returns how far the weights of each layer moved, relative to their norm."""
        layers: dict[str, list[tuple[tf.Tensor, tf.Tensor]]] = {}
        for weight, old, new in zip(self._weights(), before, after, strict=True):
            layers.setdefault(self._layers[weight.name], []).append((old, new - old))
        ratios = []
        for pairs in layers.values():
            old, moved = zip(*pairs, strict=True)
            squares = tf.math.divide_no_nan(_sum_of_squares(moved), _sum_of_squares(old))
            ratios.append(tf.sqrt(squares))
        return ratios

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

    gradients: list[tf.Tensor | tf.IndexedSlices] | None = None  # None if the step is not measured


class _WatchedOptimizer(OptimizerProxy):
    """Behaves like an optimizer, and stores the gradients of a measured step before it clips them.

    They are unscaled already: a task that scales its loss divides them before it applies them.
    """

    def __init__(self, optimizer: AppliesGradients, tracing: _Tracing) -> None:
        super().__init__(optimizer)
        self._tracing = tracing

    def apply_gradients(
        self, grads_and_vars: GradsAndVars, *args: object, **kwargs: object
    ) -> object:
        """Applies the gradients."""
        pairs = list(grads_and_vars)
        if self._tracing.gradients is not None:
            self._tracing.gradients += [grad for grad, _ in pairs if grad is not None]
        return self._optimizer.apply_gradients(pairs, *args, **kwargs)


def _sum_of_squares(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.add_n([tf.reduce_sum(tf.square(tf.cast(tensor, tf.float32))) for tensor in tensors])


MAX_LAYERS = 32
# Fewer groups than this say little about a network that has more than `MAX_LAYERS` layers.
_FEW = 8


def layers_by_variable(names: Sequence[str]) -> dict[str, str]:
    """Returns the layer of each variable, by the names of the variables.

    The layer is the name without its last part: `block/dense` for `block/dense/kernel:0`. If there
    are more than `MAX_LAYERS` layers, those with a common prefix count as one. If that leaves only
    a few, consecutive layers count as one, which is named `first..last`.
    """
    paths = {name: _path(name) for name in names}
    deepest = max((len(path) for path in paths.values()), default=1)
    prefixes = [
        {name: "/".join(path[:depth]) for name, path in paths.items()}
        for depth in range(1, deepest + 1)
    ]
    # A longer prefix never gives fewer groups.
    fitting = [layers for layers in prefixes if len(set(layers.values())) <= MAX_LAYERS]
    if len(fitting) == len(prefixes):
        return prefixes[-1]
    if fitting and len(set(fitting[-1].values())) >= _FEW:
        return fitting[-1]
    return _join_consecutive_layers(prefixes[len(fitting)])


def _path(name: str) -> list[str]:
    parts = name.partition(":")[0].split("/")
    return parts[:-1] or parts


def _join_consecutive_layers(layers: dict[str, str]) -> dict[str, str]:
    """Returns the layers with consecutive ones joined, so that at most `MAX_LAYERS` are left."""
    unique = list(dict.fromkeys(layers.values()))
    size = -(-len(unique) // MAX_LAYERS)
    names = {}
    for start in range(0, len(unique), size):
        group = unique[start : start + size]
        name = group[0] if len(group) == 1 else f"{group[0]}..{group[-1]}"
        names.update(dict.fromkeys(group, name))
    return {variable: names[layer] for variable, layer in layers.items()}
