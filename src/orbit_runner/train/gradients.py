"""Computes a task's gradients without letting the task apply them.

`Task.train_step` computes gradients and applies them in one call. They must be separate to compile
only the forward and backward pass (XLA cannot compile the rest under `mirrored`), or to average the
gradients of several pieces of a batch. This also has to work for tasks of Model Garden, so the step
receives an object that behaves like the optimizer but stores the gradients.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.determinism.gradient_patches import ON_GPUS, WITH_XLA
from orbit_runner.determinism.scopes import keyed_piece_scope
from orbit_runner.distribute.devices import local_devices
from orbit_runner.errors import RunnerError
from orbit_runner.state.learning_rates import OptimizerProxy
from orbit_runner.tf_internals import is_op_determinism_enabled
from orbit_runner.utils.streams import discard_native_output_scope

if TYPE_CHECKING:
    from orbit_runner.state.learning_rates import AppliesGradients, GradsAndVars
    from orbit_runner.utils.types import Tensors


Gradients = list[tf.Tensor]
StepFn = Callable[[Any], dict[str, tf.Tensor]]
# From a batch to its loss and gradients.
Compute = Callable[[Any], tuple[tf.Tensor, Gradients]]


def compiles_whole_steps(config: ExperimentConfig, strategy: tf.distribute.Strategy) -> bool:
    """Returns whether XLA compiles whole steps. Several replicas apply gradients outside of it.

    The programs of logical replicas are the same on any number of devices.
    """
    is_alone = strategy.num_replicas_in_sync == 1 and not config.runtime.logical_replicas
    return is_alone and config.uses_xla


def gradients_to_replace(
    config: ExperimentConfig, strategy: tf.distribute.Strategy
) -> frozenset[str]:
    """Returns the types of ops whose gradients must be replaced for deterministic steps."""
    if not is_op_determinism_enabled():
        return frozenset()
    if config.uses_xla:
        return WITH_XLA
    on_gpu = any("GPU" in name.upper() for name in local_devices(strategy))
    return ON_GPUS if on_gpu else frozenset()


@functools.cache
def skip_compilation_notice() -> None:
    """Compiles an empty program: TensorFlow prints a notice of the first in a process."""
    with discard_native_output_scope():
        tf.function(lambda: tf.zeros([]), jit_compile=True)()


class GradientRecorder(OptimizerProxy):
    """Behaves like an optimizer, but stores the gradients instead of applying them."""

    def __init__(self, optimizer: AppliesGradients) -> None:
        super().__init__(optimizer)
        self.recorded: list[tuple[tf.Tensor, tf.Variable]] = []

    def apply_gradients(
        self, grads_and_vars: GradsAndVars, *args: object, **kwargs: object
    ) -> None:
        """Stores the gradients that are not None.

        Raises RunnerError if it is called more than once in a step.
        """
        if self.recorded:
            raise RunnerError(
                "this task applies gradients more than once per step, so computing and applying "
                "them cannot be separated\nset runtime.enable_xla to false and "
                "trainer.gradient_accumulation_steps to 1",
                code="not-supported",
            )
        self.recorded = [(grad, var) for grad, var in grads_and_vars if grad is not None]


def split_step(
    train_step: Callable[[Tensors, GradientRecorder], dict[str, tf.Tensor]],
    optimizer: AppliesGradients,
    *,
    pieces: int,
    jit_compile: bool,
    loss: str,
) -> StepFn:
    """Returns a step that computes gradients first and applies them afterwards.

    `train_step` computes the logs of a batch and applies its gradients to the optimizer that it
    receives. AutoGraph must have converted it already, if necessary. The batch is split into
    `pieces` equal parts, whose gradients are averaged. XLA compiles only the forward and backward
    pass. `loss` is the key of the loss in the logs. The step maps the batch of a replica to
    `{loss: mean over the pieces}`.
    """
    compute, variables = gradient_function(
        train_step, optimizer, pieces=pieces, jit_compile=jit_compile, loss=loss
    )

    def step(inputs: Tensors) -> dict[str, tf.Tensor]:
        mean_loss, grads = compute(inputs)
        optimizer.apply_gradients(list(zip(grads, variables, strict=True)))
        return {loss: mean_loss}

    return step


def gradient_function(
    train_step: Callable[[Tensors, GradientRecorder], dict[str, tf.Tensor]],
    optimizer: AppliesGradients,
    *,
    pieces: int,
    jit_compile: bool,
    loss: str,
) -> tuple[Compute, list[tf.Variable]]:
    """Returns a function from a batch to loss and gradients, and the variables of the gradients.

    The arguments are those of `split_step`. The list of variables is filled when the function is
    traced.
    """
    variables: list[tf.Variable] = []

    def gradients(inputs: Tensors) -> tuple[tf.Tensor, Gradients]:
        recorder = GradientRecorder(optimizer)
        logs = train_step(inputs, recorder)
        variables[:] = [variable for _, variable in recorder.recorded]
        return logs[loss], [tf.convert_to_tensor(grad) for grad, _ in recorder.recorded]

    compute = gradients
    if jit_compile:
        compute = tf.function(gradients, autograph=False, jit_compile=True)
    return (compute if pieces == 1 else _average_over_pieces(compute, pieces)), variables


def _average_over_pieces(compute: Compute, pieces: int) -> Compute:
    def average_gradients(inputs: Tensors) -> tuple[tf.Tensor, Gradients]:
        cut = tf.nest.map_structure(lambda tensor: cut_rows(tensor, pieces), inputs)

        def piece(index: int | tf.Tensor) -> tuple[tf.Tensor, Gradients]:
            with keyed_piece_scope(index):
                return compute(tf.nest.map_structure(lambda tensor: tensor[index], cut))

        def add(index: tf.Tensor, total: Tensors) -> tuple[tf.Tensor, Tensors]:
            return index + 1, tf.nest.map_structure(tf.add, total, piece(index))

        # A sequential loop, not an unrolled sum, so that the memory of a piece is freed before the
        # next piece begins. Without the control dependency, TensorFlow would begin the second piece
        # while it computes the first piece.
        first = piece(0)
        with tf.control_dependencies(tf.nest.flatten(first)):
            start = tf.identity(1)
        _, total = tf.while_loop(
            lambda index, _: index < pieces, add, (start, first), parallel_iterations=1
        )
        return tf.nest.map_structure(lambda tensor: tensor / pieces, total)

    return average_gradients


def cut_rows(tensor: tf.Tensor, pieces: int) -> tf.Tensor:
    """Returns a tensor [rows, …] cut into equal pieces: [pieces, rows / pieces, …]."""
    return tf.reshape(tensor, tf.concat([[pieces, -1], tf.shape(tensor)[1:]], axis=0))
