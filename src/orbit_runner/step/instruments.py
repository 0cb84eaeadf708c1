"""Observes a step that runs eagerly: the ops whose outputs are not finite, layers, gradients."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from orbit_runner.checkpoint.fingerprint import count_non_finite
from orbit_runner.state.learning_rates import replaced_methods_scope, seen_gradients_scope
from orbit_runner.step.layers import rows_of
from orbit_runner.step.results import BACKWARD, FORWARD, LOSS, UPDATE, FirstBadValue
from orbit_runner.tasks.base import Task
from orbit_runner.tasks.layer_names import layers_by_name
from orbit_runner.tf_internals import (
    add_op_callback,
    gradient_function,
    remove_op_callback,
    set_gradient_function,
)
from orbit_runner.train.evaluator import as_scalar

if TYPE_CHECKING:
    import tf_keras
    from official.core import base_task

    from orbit_runner.state.learning_rates import Optimizer
    from orbit_runner.utils.types import Tensors


_READ_OP = "ReadVariableOp"


@dataclasses.dataclass(frozen=True, eq=False)
class BadOutput:
    """An output of an op that is not finite."""

    is_nan: bool
    order: int  # of the first bad value that led to it
    origin: FirstBadValue  # that value; its own if the inputs of the op are finite
    tensor: tf.Tensor = dataclasses.field(repr=False)  # kept, so that no other tensor has its `id`


@dataclasses.dataclass(frozen=True)
class LossCall:
    """A call of a function that computes losses."""

    replica: int
    function: Callable[..., Tensors]
    arguments: tuple[tuple[object, ...], dict[str, object]]
    result: Tensors | None  # None if the call failed


class _ThreadState(threading.local):
    """What a replica does at the moment; `MirroredStrategy` runs each one in a thread."""

    def __init__(self) -> None:
        self.layers: list[str] = []
        self.phase = FORWARD
        self.gradient_of: str | None = None  # the layer whose gradient is computed
        self.calls = 0  # of the whole model
        self.rows = 0  # of the last of these calls


class Instruments:
    """Observes the ops of a step on all replicas.

    `starts` are the first rows of the replicas in the global batch, and `batch` its tensors.
    `pieces` is the number of parts into which gradient accumulation splits a batch.
    """

    def __init__(
        self,
        task: base_task.Task,
        model: tf_keras.Model,
        *,
        starts: Sequence[int],
        batch: Sequence[tf.Tensor],
        pieces: int,
    ) -> None:
        self._task = task
        self._model = model
        self._layers = layers_by_name(model)
        self._names = {id(layer): name for name, layer in self._layers.items()}
        self._starts = starts
        self._pieces = pieces
        self._batch = {id(tensor) for tensor in batch}
        self._shapes = {tuple(variable.shape.as_list()) for variable in model.trainable_variables}
        # The layers of the ops in the forward pass, by their outputs, and by op and input.
        self._output_layers: dict[int, str] = {}
        self._input_layers: dict[tuple[str, int], str] = {}
        self._thread = _ThreadState()
        self._bad: dict[int, BadOutput] = {}
        self._stored: list[BadOutput] = []  # values that an op without outputs stored
        self.losses: list[tf.Tensor] = []  # of each replica, or of each piece
        # (gradient, variable) of each replica
        self.gradients: list[tuple[tf.Tensor | tf.IndexedSlices, tf.Variable]] = []
        self.loss_calls: list[LossCall] = []  # of `example_losses`
        self.batch_loss_calls: list[LossCall] = []  # of `build_losses`
        self.failure: FirstBadValue | None = None  # the op that raised an error

    @contextlib.contextmanager
    def installed_scope(self, optimizer: Optimizer) -> Iterator[None]:
        """Observes the ops in a `with` block. Functions must run eagerly."""
        with contextlib.ExitStack() as stack:

            def wrap(owners: Sequence[Any], name: str, make: Callable[[Any], Any]) -> None:
                stack.enter_context(replaced_methods_scope(owners, name, make))

            wrap([*self._layers.values()], "call", self._wrap_call)
            wrap([self._task], "train_step", self._wrap_train_step)
            for name, calls, after in (
                ("build_losses", self.batch_loss_calls, BACKWARD),
                ("example_losses", self.loss_calls, FORWARD),
            ):
                # A task may define only one of them.
                if getattr(type(self._task), name, None) not in (None, Task.example_losses):
                    make = functools.partial(self._wrap_loss, name=name, calls=calls, after=after)
                    wrap([self._task], name, make)
            wrap([optimizer], "apply_gradients", self._wrap_apply_gradients)
            stack.enter_context(seen_gradients_scope(optimizer, self.gradients.extend))
            add_op_callback(self._on_op)
            stack.callback(remove_op_callback, self._on_op)
            set_gradient_function(self._gradient_function)
            stack.callback(set_gradient_function, gradient_function)
            yield

    def origin(self) -> FirstBadValue | None:
        """Returns the first bad value of those that led to a bad loss, gradient or weight.

        Returns None if none did. Infinities that a later op masks led to nothing.
        """
        finals = [*self._bad_of(self._losses_and_gradients()), *self._stored]
        first = min(finals, key=lambda output: output.order, default=None)
        return None if first is None else first.origin

    def _bad_of(self, tensors: Sequence[tf.Tensor] | None) -> list[BadOutput]:
        """Returns what is known of those tensors that are not finite."""
        return [self._bad[id(tensor)] for tensor in tensors or () if id(tensor) in self._bad]

    def has_bad_result(self) -> bool:
        """Returns whether the loss or a gradient is not finite."""
        return any(map(_is_bad, self._losses_and_gradients()))

    def _losses_and_gradients(self) -> list[tf.Tensor]:
        gradients = (getattr(gradient, "values", gradient) for gradient, _ in self.gradients)
        values = [*self.losses, *gradients]
        return [value for value in values if tf.is_tensor(value)]

    def _on_op(
        self,
        op: str,
        inputs: Sequence[tf.Tensor] | None,
        attrs: object,
        outputs: Sequence[tf.Tensor] | None,
        op_name: object = None,
        graph: tf.Graph | None = None,
    ) -> None:
        if graph is not None:  # An op is added to a graph, not run.
            return
        op = op.decode() if isinstance(op, bytes) else op
        if self._thread.layers:
            layer = self._thread.layers[-1]
            self._output_layers.update((id(tensor), layer) for tensor in outputs or ())
            self._input_layers.update(((op, id(tensor)), layer) for tensor in inputs or ())
        for output in filter(_is_bad, outputs or ()):
            self._record_bad_output(op, inputs or (), output)
        if not outputs and self._phase() == UPDATE:
            self._stored += self._bad_of(inputs)

    def _record_bad_output(self, op: str, inputs: Sequence[tf.Tensor], output: tf.Tensor) -> None:
        value = output.numpy()
        is_nan = bool(np.isnan(value).any())
        parents = self._bad_of(inputs)
        # If an op read NaN, that is why its output is NaN; an infinity may have been a mask.
        causes = [parent for parent in parents if parent.is_nan] or parents
        first = min(causes, key=lambda parent: parent.order, default=None)
        if first is None:
            phase = self._phase()
            origin = FirstBadValue(
                layer=self._layer(phase),
                op=op,
                kind="nan" if is_nan else "inf",
                phase=phase,
                rows=() if op == _READ_OP else self._rows(value, phase),
                replica=None if phase == UPDATE else self._shown_replica(),
                source=self._source(op, inputs),
            )
            first = BadOutput(is_nan, len(self._bad), origin, output)
        self._bad[id(output)] = dataclasses.replace(first, is_nan=is_nan, tensor=output)

    def _gradient_function(
        self,
        op: str,
        attrs: object,
        count: int,
        inputs: Sequence[tf.Tensor] | None,
        outputs: Sequence[tf.Tensor] | None,
        *rest: object,
    ) -> Any:
        """Computes the gradient of an op. TensorFlow calls this function."""
        # TensorFlow keeps only the inputs and outputs that the gradient needs.
        output_layers = [self._output_layers.get(id(tensor)) for tensor in outputs or ()]
        input_layers = [self._input_layers.get((op, id(tensor))) for tensor in inputs or ()]
        self._thread.gradient_of = next(
            (layer for layer in (*output_layers, *input_layers) if layer is not None), ""
        )
        try:
            return gradient_function(op, attrs, count, inputs, outputs, *rest)
        finally:
            self._thread.gradient_of = None

    def _phase(self) -> str:
        if tf.distribute.in_cross_replica_context():
            return UPDATE
        return self._thread.phase if self._thread.gradient_of is None else BACKWARD

    def _layer(self, phase: str) -> str:
        if phase == BACKWARD:
            return self._thread.gradient_of or ""
        return self._thread.layers[-1] if self._thread.layers else ""

    def _source(self, op: str, inputs: Sequence[tf.Tensor]) -> str:
        """Returns where an op got values that are not finite, if no other op computed them."""
        if op == _READ_OP:
            return "weights"
        bad = [*filter(_is_bad, inputs)]
        if any(id(tensor) in self._batch for tensor in bad):
            return "batch"
        return "weights" if bad else ""

    def _rows(self, value: np.ndarray, phase: str) -> tuple[int, ...]:
        """Returns the rows of the global batch with values that are not finite, if it has rows."""
        rows = self._thread.rows
        # A gradient may be that of a weight with as many rows.
        of_weight = phase == BACKWARD and value.shape in self._shapes
        if phase == UPDATE or not value.ndim or value.shape[0] != rows or of_weight:
            return ()
        piece = max(0, self._thread.calls - 1) if self._pieces > 1 else 0
        first = self._starts[_replica()] + piece * rows
        bad = ~np.isfinite(value.astype(np.float64)).reshape(rows, -1).all(axis=1)
        return tuple(int(row) + first for row in np.flatnonzero(bad))

    def _wrap_call(self, layer: tf_keras.layers.Layer) -> Callable[..., Tensors]:
        original = layer.call
        name = self._names[id(layer)]
        thread = self._thread

        @tf.autograph.experimental.do_not_convert
        def call(*args: object, **kwargs: object) -> Tensors:
            if not thread.layers:
                thread.calls += layer is self._model
                thread.rows = rows_of((args, kwargs))
            with self._place_scope(name, FORWARD):
                return original(*args, **kwargs)

        return call

    @contextlib.contextmanager
    def _place_scope(self, layer: str, phase: str, after: str = FORWARD) -> Iterator[None]:
        """Attributes the ops in a `with` block to a layer and a phase; `after` follows it."""
        thread = self._thread
        thread.phase = phase
        thread.layers.append(layer)
        try:
            yield
        except Exception:
            self._store_failure(layer, phase)
            raise
        finally:
            thread.layers.pop()
            thread.phase = after

    def _wrap_train_step(self, task: base_task.Task) -> Callable[..., dict[str, tf.Tensor]]:
        original = task.train_step

        def train_step(*args: object, **kwargs: object) -> dict[str, tf.Tensor]:
            self._thread.phase = FORWARD
            try:
                logs = original(*args, **kwargs)
            except Exception:
                self._store_failure("", self._phase())
                raise
            self.losses.append(as_scalar(logs[task.loss]))
            return logs

        return tf.autograph.experimental.do_not_convert(train_step)

    def _store_failure(self, layer: str, phase: str) -> None:
        # The innermost layer is the first to see an error.
        self.failure = self.failure or FirstBadValue(
            layer=layer, op="", kind="error", phase=phase, replica=self._shown_replica()
        )

    def _shown_replica(self) -> int | None:
        return _replica() if len(self._starts) > 1 else None

    def _wrap_loss(
        self, task: base_task.Task, name: str, calls: list[LossCall], after: str
    ) -> Callable[..., Tensors]:
        function = getattr(task, name)

        def loss(*args: object, **kwargs: object) -> Tensors:
            result = None
            try:
                with self._place_scope(LOSS, FORWARD, after):
                    result = function(*args, **kwargs)
                return result
            finally:
                calls.append(LossCall(_replica(), function, (args, kwargs), result))

        return tf.autograph.experimental.do_not_convert(loss)

    def _wrap_apply_gradients(self, optimizer: Optimizer) -> Callable[..., object]:
        original = optimizer.apply_gradients

        def apply_gradients(*args: Any, **kwargs: Any) -> object:
            with self._place_scope("", UPDATE):
                return original(*args, **kwargs)

        return tf.autograph.experimental.do_not_convert(apply_gradients)


def _replica() -> int:
    context = tf.distribute.get_replica_context()
    return 0 if context is None else int(context.replica_id_in_sync_group)


def _is_bad(tensor: tf.Tensor) -> bool:
    """Returns whether a tensor has values that are not finite."""
    is_inexact = hasattr(tensor, "numpy") and (tensor.dtype.is_floating or tensor.dtype.is_complex)
    return bool(is_inexact and count_non_finite(tensor.numpy()))
