"""Which examples of which global batch are in each element of a pipeline."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from orbit_runner.errors import DataError


@dataclasses.dataclass(frozen=True)
class ReplicaSlices:
    """The slices of the global batches that one pipeline makes, one per element.

    In each step, each replica of a pipeline takes one element, in the order of the replicas. So
    element q of pipeline p with r replicas belongs to step q // r and replica p·r + q % r. If there
    are more pipelines than replicas in sync, workers do not wait for each other, and each pipeline
    makes every n-th global batch.
    """

    global_batch_size: int
    batch_size: int  # Examples of an element.
    replicas: int = 1  # Replicas of this pipeline.
    first_replica: int = 0  # The first of those replicas.
    first_step: int = 0  # The first step that this pipeline makes an element for.
    step_stride: int = 1  # The number of steps from there to the next one.

    @property
    def replicas_in_sync(self) -> int:
        """The number of replicas that share a global batch."""
        return self.global_batch_size // self.batch_size

    def positions(self, elements: tf.Tensor, start_step: int | tf.Tensor = 0) -> tf.Tensor:
        """Returns positions in the infinite sequence of examples: int64 [k, batch_size].

        `elements`, int64 [k], are indices of this pipeline's elements. `start_step` is the step at
        which all pipelines start.
        """
        turns = elements // self.replicas
        replica = self.first_replica + elements - turns * self.replicas
        step = start_step + self.first_step + turns * self.step_stride
        first = step * self.global_batch_size + replica * self.batch_size
        return first[:, tf.newaxis] + tf.range(self.batch_size, dtype=tf.int64)

    def elements(self, steps: int) -> int:
        """Returns how many elements this pipeline makes in the first `steps` global steps."""
        return max(0, -(-(steps - self.first_step) // self.step_stride)) * self.replicas


def replica_slices(
    global_batch_size: int, context: tf.distribute.InputContext | None
) -> ReplicaSlices:
    """Returns the slices that the pipeline of an input context makes.

    If `context` is None, there is one pipeline with one replica. Raises DataError if the global
    batch size is not a multiple of the number of replicas.
    """
    context = context or tf.distribute.InputContext()
    replicas = context.num_replicas_in_sync
    pipelines = context.num_input_pipelines
    if global_batch_size < 1 or global_batch_size % replicas:
        expected = (
            f"a multiple of {replicas}, the number of replicas" if replicas > 1 else "1 or more"
        )
        raise DataError(
            f"got a global batch size of {global_batch_size}, expected {expected}",
            field="global_batch_size",
            code="not-divisible",
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
    """Returns the number of global steps in one pass over `size` examples."""
    return size // global_batch_size if drop_remainder else -(-size // global_batch_size)


def count_eval_steps(name: str, size: int, global_batch_size: int, drop_remainder: bool) -> int:
    """Returns the number of global steps in one pass; raises DataError if there is none."""
    steps = eval_steps(size, global_batch_size, drop_remainder)
    if not steps:
        raise DataError(
            f"{name}: got {size} examples, expected at least {global_batch_size}, the global "
            "batch size, because the last, partial batch is dropped",
            field="drop_remainder",
            code="out-of-range",
        )
    return steps
