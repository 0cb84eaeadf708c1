"""Training and evaluation whose results do not depend on the number of devices.

`runtime.logical_replicas` cuts each global batch into parts, the shards, once in the experiment. A
device computes whole shards, one after another, with the random draws that a replica of that number
would have. What all shards compute is summed in one fixed tree.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.partitioning import unequal_shares_message
from orbit_runner.config.schema.runtime import LOGICAL_REPLICAS
from orbit_runner.determinism.patches import logical_replica_scope
from orbit_runner.determinism.scopes import keyed_draws_scope
from orbit_runner.errors import SettingError
from orbit_runner.state.replica_state import replica_local_variables
from orbit_runner.state.train_state import TrainState
from orbit_runner.train.evaluator import MAX_BATCHES, Step, as_scalar, metric_variables
from orbit_runner.train.gradients import StepFn, cut_rows, gradient_function
from orbit_runner.train.inputs.distribute import leading_size
from orbit_runner.train.steps import TrainStep, task_train_step
from orbit_runner.utils.autograph import convert

if TYPE_CHECKING:
    from orbit_runner.state.learning_rates import Optimizer
    from orbit_runner.train.loops.loop_pieces import Results
    from orbit_runner.utils import types


@dataclasses.dataclass(frozen=True)
class Shards:
    """The shards of a global batch, cut into `logical` parts, on `physical` devices.

    Raises SettingError if the devices cannot compute equally many shards.
    """

    logical: int
    physical: int
    seed: int
    purpose: str  # separates the draws of training and evaluation

    def __post_init__(self) -> None:
        if self.logical % self.physical:
            message = unequal_shares_message(self.logical, self.physical)
            raise SettingError(LOGICAL_REPLICAS, message, code="not-divisible")

    @property
    def each(self) -> int:
        """The number of shards of a device."""
        return self.logical // self.physical

    def sum_over_shards(
        self,
        function: Callable[[types.Tensors], Tensors],
        inputs: types.Tensors,
        step: tf.Tensor,
        *,
        metrics: Sequence[tf.Variable] = (),
        averaged: Sequence[tf.Variable] = (),
    ) -> Tensors:
        """Returns the sums of what `function` returns, over the shards of all devices.

        Must be called in a graph, in a replica context. `function` maps the inputs of a shard to
        tensors with static shapes; `inputs` are those of this device, nested tensors [rows, …].
        `step` (int64 scalar) and the number of the logical replica are the keys of its draws.

        Each shard starts with the same values of the variables in `averaged`, which are then set to
        the mean of their new values, such as moving averages. Those in `metrics` are sums over
        examples that `function` adds to: the sum of all additions is added to them on the first
        device, because their value is the sum over the devices.
        """
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        first = tf.cast(replica, tf.int32) * self.each
        cut = tf.nest.map_structure(lambda tensor: cut_rows(tensor, self.each), inputs)
        old_values = [tf.identity(variable) for variable in averaged]
        totals = [tf.identity(variable) for variable in metrics]

        def compute(
            batch: types.Tensors, logical: tf.Tensor, step: tf.Tensor, old_values: Tensors
        ) -> Tensors:
            for variable, value in zip(averaged, old_values, strict=True):
                variable.assign(value)
            for variable in metrics:
                variable.assign(tf.zeros(variable.shape, variable.dtype))
            with self._replica_scope(logical, step):
                results = function(batch)
            return [*results, *map(tf.identity, averaged), *map(tf.identity, metrics)]

        call = trace_function(
            compute, tf.nest.map_structure(lambda shards: shards[0], cut), first, step, old_values
        )

        def shard(index: tf.Tensor) -> Tensors:
            batch = tf.nest.map_structure(lambda tensor: tensor[index], cut)
            return list(call(batch, first + index, step, old_values))

        sums = self._sum_all_shards(
            shard, [tf.TensorSpec(output.shape, output.dtype) for output in call.outputs]
        )
        count = len(sums) - len(averaged) - len(metrics)
        means = sums[count : count + len(averaged)]
        for variable, value in zip(averaged, means, strict=True):
            variable.assign(value / tf.cast(self.logical, value.dtype))
        added = sums[count + len(averaged) :]
        for variable, before, value in zip(metrics, totals, added, strict=True):
            variable.assign(before + keep_on_first_device(value))
        return sums[:count]

    def evaluate(
        self,
        step: Step,
        inputs: types.Tensors,
        draws: tf.Variable,
        metrics: Sequence[Any],
    ) -> Results:
        """Runs a step of an evaluation, a `StepRunner`, on the shards of all devices.

        For tasks whose batches can all be divided equally, and which gather no outputs.
        """

        def evaluate(shard: types.Tensors) -> Tensors:
            step(shard)
            return []

        variables = metric_variables(metrics)
        self.sum_over_shards(evaluate, inputs, draws.assign_add(1), metrics=variables)
        return {}

    def evaluate_in_order(
        self,
        step: Step,
        shard: types.Tensors,
        draws: tf.Variable,
        metrics: Sequence[Any],
    ) -> Results:
        """Runs a step of an evaluation, a `StepRunner`, on one shard for each device.

        Adds up the metrics in the order of the shards, so that the results are the same on any
        number of devices. For tasks whose batches cannot all be divided equally, and those that
        gather the outputs of their steps. The dataset has a shard in each element.
        """
        context = tf.distribute.get_replica_context()
        count = draws.assign_add(1) - 1
        replica = tf.cast(context.replica_id_in_sync_group, tf.int64)
        number = count % MAX_BATCHES * self.physical + replica
        variables = metric_variables(metrics)
        totals = [tf.identity(variable) for variable in variables]

        def compute(
            shard: types.Tensors, logical: tf.Tensor, step_key: tf.Tensor
        ) -> tuple[Results, Tensors]:
            rows = leading_size(shard)
            for variable in variables:
                variable.assign(tf.zeros(variable.shape, variable.dtype))
            with self._replica_scope(logical, step_key):
                logs = step(shard)
            # At the end of the data, devices without a shard get a batch without rows.
            values = map(tf.identity, variables)
            return logs, [tf.where(rows > 0, value, tf.zeros_like(value)) for value in values]

        keys = (
            tf.cast(number % self.logical, tf.int32),
            count // MAX_BATCHES * MAX_BATCHES + number // self.logical,
        )
        logs, added = trace_function(compute, shard, *keys)(shard, *keys)
        for variable, total, value in zip(variables, totals, added, strict=True):
            variable.assign(keep_on_first_device(self._add_in_order(total, value)))
        return logs

    def _add_in_order(self, total: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
        """Returns the total plus the values of all devices, which it adds one after another."""
        if self.physical == 1:
            return total + value
        context = tf.distribute.get_replica_context()
        rows = context.all_gather(value[tf.newaxis], axis=0)
        # A loop, because TensorFlow would merge additions into one op, which adds in another order.
        return tf.foldl(tf.add, rows, initializer=total, parallel_iterations=1)

    @contextlib.contextmanager
    def _replica_scope(self, logical: tf.Tensor, step: tf.Tensor) -> Iterator[None]:
        """Makes a device act as a logical replica: the keys of its draws, its share of the loss."""
        with (
            logical_replica_scope(self.logical),
            keyed_draws_scope(self.seed, step, logical, self.purpose),
        ):
            yield

    def _sum_all_shards(
        self, shard: Callable[[tf.Tensor], Tensors], like: Sequence[tf.TensorSpec]
    ) -> Tensors:
        size = block_size(self.each)
        blocks = self.each // size
        if blocks == 1 and self.physical == 1:
            return block_sum(shard, tf.constant(0), size, like)
        block_sums = _sum_blocks(
            lambda block: block_sum(shard, block * size, size, like), blocks, like
        )
        return _sum_over_devices(block_sums, like, self.physical)


def trace_function(
    function: Callable[..., object], *arguments: types.Tensors
) -> tf.types.experimental.ConcreteFunction:
    """Returns a concrete function that is optimized alone, the same for any number of devices."""
    traced = tf.function(function, autograph=False, experimental_attributes={"_noinline": True})
    specs = tf.nest.map_structure(tf.type_spec_from_value, arguments)
    return traced.get_concrete_function(*specs)


def _sum_blocks(
    block_of: Callable[[tf.Tensor], Tensors], blocks: int, like: Sequence[tf.TensorSpec]
) -> list[tf.Tensor]:
    """Returns the sums of the blocks, flat: a tensor [blocks, n] for each dtype."""
    if blocks == 1:
        return _flatten_rows([tensor[tf.newaxis] for tensor in block_of(tf.constant(0))], 1)
    arrays = [tf.TensorArray(spec.dtype, size=blocks, element_shape=spec.shape) for spec in like]

    def take(
        block: tf.Tensor, arrays: list[tf.TensorArray]
    ) -> tuple[tf.Tensor, list[tf.TensorArray]]:
        sums = block_of(block)
        new_arrays = [a.write(block, total) for a, total in zip(arrays, sums, strict=True)]
        return block + 1, new_arrays

    _, arrays = tf.while_loop(
        lambda block, _: block < blocks, take, (tf.constant(0), arrays), parallel_iterations=1
    )
    return _flatten_rows([array.stack() for array in arrays], blocks)


def _flatten_rows(tensors: Tensors, rows: int) -> list[tf.Tensor]:
    return [
        tf.concat([tf.reshape(tensors[place], [rows, -1]) for place in places], axis=1)
        for places in _group_by_dtype(tensors)
    ]


def _group_by_dtype(tensors: Sequence[tf.Tensor | tf.TensorSpec]) -> list[list[int]]:
    groups: dict[tf.DType, list[int]] = {}
    for place, tensor in enumerate(tensors):
        groups.setdefault(tensor.dtype, []).append(place)
    return [*groups.values()]


def _sum_over_devices(
    sums_by_dtype: list[tf.Tensor], like: Sequence[tf.TensorSpec], devices: int
) -> Tensors:
    """Returns the sums of all devices' blocks, which every device adds in the same tree."""
    sums: list[tf.Tensor | None] = [None] * len(like)
    for flat, places in zip(sums_by_dtype, _group_by_dtype(like), strict=True):
        rows = flat
        if devices > 1:
            # Gathered, not reduced: the order in which a reduction adds depends on its algorithm.
            rows = tf.distribute.get_replica_context().all_gather(flat, axis=0)
            rows = tf.ensure_shape(rows, [devices * flat.shape[0], flat.shape[1]])
        sizes = [like[place].shape.num_elements() for place in places]
        for place, part in zip(places, tf.split(tree_sum(rows), sizes), strict=True):
            sums[place] = tf.reshape(part, like[place].shape)
    return sums


def keep_on_first_device(value: tf.Tensor) -> tf.Tensor:
    """Returns the value on the first device, and zeros on the others."""
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    return tf.where(tf.equal(replica, 0), value, tf.zeros_like(value))


Tensors = list[tf.Tensor]


# Terms are summed in one fixed binary tree, whichever devices compute them. Neighbors are added
# pairwise, then neighboring sums, and so on; a last term without a neighbor moves up unchanged.
# Floating-point addition is not associative, so the order determines the last bits.
#
#     terms       0   1     2   3     4   5     6
#                  \ /       \ /       \ /      |
#     sums         0+1       2+3       4+5      6
#                    \       /           \     /
#                    0+1+2+3             4+5+6
#                           \           /
#                                sum
#
# Two devices with four terms each compute the left and the right half, and then add them.


def tree_sum(rows: tf.Tensor) -> tf.Tensor:
    """Returns the sum of the rows of a tensor [n, …], n > 0, whose first size is static."""
    count = rows.shape[0]
    while count > 1:
        paired = count // 2 * 2
        # Of slices, not of single rows: TensorFlow would merge additions of equal shapes into one
        # op, which adds from left to right.
        sums = rows[0:paired:2] + rows[1:paired:2]
        rows = sums if paired == count else tf.concat([sums, rows[paired:]], axis=0)
        count = rows.shape[0]
    return rows[0]


def block_size(count: int) -> int:
    """Returns the largest power of two that divides `count`.

    If each device holds `count` neighboring terms, each aligned block of this size is a subtree.
    """
    return count & -count


def block_sum(
    compute: Callable[[tf.Tensor], Tensors],
    first: tf.Tensor,
    size: int,
    like: Sequence[tf.TensorSpec],
) -> Tensors:
    """Returns the sum of `compute(first)` to `compute(first + size - 1)` in the tree.

    Computes one term after another, and keeps one sum per level of the tree. `first` is an int32
    scalar, `size` a power of two, and `like` has the static shapes of the terms.
    """
    if size == 1:
        return compute(first)
    half = size // 2

    def add(turn: tf.Tensor, total: Tensors) -> tuple[tf.Tensor, Tensors]:
        block = block_sum(compute, first + turn * half, half, like)
        return turn + 1, [left + right for left, right in zip(total, block, strict=True)]

    # A loop of two iterations, not two calls, so that the step is traced once and the memory of the
    # first half is freed before the second half begins.
    _, total = tf.while_loop(
        lambda turn, _: turn < 2,
        add,
        (tf.constant(0), [_negative_zeros(spec) for spec in like]),
        parallel_iterations=1,
    )
    return list(total)


def _negative_zeros(spec: tf.TensorSpec) -> tf.Tensor:
    # The sum of 0.0 and -0.0 is 0.0, so only -0.0 leaves every number as it is.
    zero = -0.0 if spec.dtype.is_floating else 0
    return tf.fill(spec.shape, tf.constant(zero, spec.dtype))


def sum_gradients_over_shards(
    step: TrainStep,
    config: ExperimentConfig,
    task: Any,
    state: TrainState,
    strategy: tf.distribute.Strategy,
) -> TrainStep:
    """Returns a step that sums the gradients of all logical replicas, and applies them once.

    So weights and state are the same on any number of devices that divides the logical replicas.
    Raises SettingError if a layer of the model normalizes over all replicas.
    """
    _reject_synchronized_normalization(state.model)
    metrics = step.metrics
    runtime = config.runtime
    pieces = config.trainer.gradient_accumulation_steps
    shards = Shards(runtime.logical_replicas, strategy.num_replicas_in_sync, runtime.seed, "train")

    def build(optimizer: Optimizer) -> StepFn:
        gradients, variables = gradient_function(
            convert(task_train_step(task, state, metrics, optimizer), task),
            optimizer,
            pieces=pieces,
            jit_compile=config.uses_xla,
            loss=task.loss,
        )

        def shard(inputs: types.Tensors) -> Tensors:
            loss, grads = gradients(inputs)
            metrics.record({task.loss: loss})
            return [as_scalar(loss), *grads]

        def logical_step(inputs: types.Tensors) -> dict[str, tf.Tensor]:
            layers = state.trained_layers
            unchanged = layers.frozen if layers is not None else ()
            total, *grads = shards.sum_over_shards(
                shard,
                inputs,
                state.global_step.read_value(),
                metrics=metric_variables(metrics.all()),
                averaged=replica_local_variables(state.model, unchanged),
            )
            _apply(optimizer, grads, variables)
            return {task.loss: total}

        return logical_step

    # The loops over shards cannot be told from those over the pieces of a batch.
    is_known = shards.each == 1 or pieces <= 2
    repeats = shards.each if is_known else None
    return dataclasses.replace(step, build=build, repeats=repeats)


def _apply(optimizer: Optimizer, grads: list[tf.Tensor], variables: list[tf.Variable]) -> None:
    """Applies gradients that are the same on all devices, without summing them again."""
    # The older AdamW of Model Garden clips only gradients that it sums itself.
    norm = getattr(optimizer, "gradient_clip_norm", 0.0)
    if norm:
        grads, _ = tf.clip_by_global_norm(grads, norm)
    pairs = list(zip(grads, variables, strict=True))
    # Optimizers of both kinds, and those that scale the loss, accept this argument.
    optimizer.apply_gradients(pairs, experimental_aggregate_gradients=False)


def _reject_synchronized_normalization(model: tf.Module) -> None:
    for layer in getattr(model, "submodules", ()):
        if "SyncBatchNorm" in type(layer).__name__ or getattr(layer, "synchronized", False):
            raise SettingError(
                LOGICAL_REPLICAS,
                f"is not supported: layer {layer.name!r} normalizes over all replicas at once\n"
                "use batch normalization that is not synchronized (use_sync_bn: false)",
                code="not-supported",
            )
