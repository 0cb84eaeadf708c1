"""Which examples of which global batch make one element of one pipeline."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from orbit_runner.errors import DataError


@dataclasses.dataclass(frozen=True)
class ReplicaSlices:
    """The slices of the global batches that one pipeline makes, one an element.

    A pipeline is pulled once a step for each of its replicas, in their order. So element q of
    pipeline p with r replicas is of step q // r and replica p·r + q % r. Workers that do not wait
    for each other (more pipelines than replicas in sync) take turns at whole global batches.

    Attributes:
        global_batch_size: Examples of a step, B.
        batch_size: Examples of an element, b.
        replicas: Replicas of this pipeline, r.
        first_replica: The first of them.
        first_step: The first step that this pipeline has a part in.
        step_stride: How far its next step is.
    """

    global_batch_size: int
    batch_size: int
    replicas: int = 1
    first_replica: int = 0
    first_step: int = 0
    step_stride: int = 1

    @property
    def replicas_in_sync(self) -> int:
        """Replicas that share a global batch."""
        return self.global_batch_size // self.batch_size

    def positions(self, elements: tf.Tensor, start_step: int | tf.Tensor = 0) -> tf.Tensor:
        """Finds the positions in the endless row of examples.

        Args:
            elements: Numbers of elements of this pipeline, int64 [k].
            start_step: The step of the first of all pipelines' elements.

        Returns:
            int64 [k, b].
        """
        turns = elements // self.replicas
        replica = self.first_replica + elements - turns * self.replicas
        step = start_step + self.first_step + turns * self.step_stride
        first = step * self.global_batch_size + replica * self.batch_size
        return first[:, tf.newaxis] + tf.range(self.batch_size, dtype=tf.int64)

    def elements(self, steps: int) -> int:
        """Returns how many elements this pipeline has a part in.

        Args:
            steps: Number of global steps, of all pipelines.
        """
        return max(0, -(-(steps - self.first_step) // self.step_stride)) * self.replicas


def replica_slices(
    global_batch_size: int, context: tf.distribute.InputContext | None
) -> ReplicaSlices:
    """Shares out global batches.

    Args:
        global_batch_size: Examples of a step on all replicas.
        context: Which pipeline this is; None for the only one, of one replica.

    Returns:
        The share of this pipeline.

    Raises:
        DataError: The batch does not divide by the replicas.
    """
    context = context or tf.distribute.InputContext()
    replicas, pipelines = context.num_replicas_in_sync, context.num_input_pipelines
    if global_batch_size < 1 or global_batch_size % replicas:
        raise DataError(
            f"got a global batch of {global_batch_size}, expected a multiple of {replicas}, the "
            "number of replicas",
            field="global_batch_size",
        )
    if replicas < pipelines:
        return ReplicaSlices(
            global_batch_size,
            global_batch_size // replicas,
            first_step=context.input_pipeline_id,
            step_stride=pipelines,
        )
    local = replicas // pipelines
    return ReplicaSlices(
        global_batch_size,
        global_batch_size // replicas,
        replicas=local,
        first_replica=context.input_pipeline_id * local,
    )


def eval_steps(size: int, global_batch_size: int, drop_remainder: bool = False) -> int:
    """Counts the steps of one pass.

    Args:
        size: Number of examples.
        global_batch_size: Examples of a step on all replicas.
        drop_remainder: Whether a last, part-filled batch is left out.

    Returns:
        The number of global steps.
    """
    return size // global_batch_size if drop_remainder else -(-size // global_batch_size)


def count_eval_steps(name: str, size: int, global_batch_size: int, drop_remainder: bool) -> int:
    """Counts the steps of one pass, of which there has to be one.

    Args:
        name: What messages call the set.
        size: Number of examples.
        global_batch_size: Examples of a step on all replicas.
        drop_remainder: Whether a last, part-filled batch is left out.

    Returns:
        The number of global steps.

    Raises:
        DataError: There are none.
    """
    steps = eval_steps(size, global_batch_size, drop_remainder)
    if not steps:
        raise DataError(
            f"{name}: got a global batch of {global_batch_size} for {size} examples "
            "with the last, part-filled batch left out, expected a full batch",
            field="drop_remainder",
        )
    return steps
