"""Runs a function on the shards of a device's batch, and sums the results of all shards."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any

import tensorflow as tf

from orbit_runner.config.schema.partitioning import unequal_shares_message
from orbit_runner.config.schema.runtime import LOGICAL_REPLICAS
from orbit_runner.determinism.scopes import keyed_draws_scope
from orbit_runner.distribute.logical_replica import logical_replica_scope
from orbit_runner.errors import SettingError
from orbit_runner.train.gradients import cut_rows
from orbit_runner.train.logical_replicas.tree_sum import (
    Tensors,
    block_size,
    block_sum,
    tree_sum,
)


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
            raise SettingError(LOGICAL_REPLICAS, message)

    @property
    def each(self) -> int:
        """The number of shards of a device."""
        return self.logical // self.physical

    def sum_over_shards(
        self,
        function: Callable[[Any], Tensors],
        inputs: Any,
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
        old = [tf.identity(variable) for variable in averaged]
        totals = [tf.identity(variable) for variable in metrics]

        def compute(batch: Any, logical: tf.Tensor, step: tf.Tensor, old: Tensors) -> Tensors:
            for variable, value in zip(averaged, old, strict=True):
                variable.assign(value)
            for variable in metrics:
                variable.assign(tf.zeros(variable.shape, variable.dtype))
            with self._replica_scope(logical, step):
                results = function(batch)
            return [*results, *map(tf.identity, averaged), *map(tf.identity, metrics)]

        call = trace_function(
            compute, tf.nest.map_structure(lambda one: one[0], cut), first, step, old
        )

        def shard(index: tf.Tensor) -> Tensors:
            batch = tf.nest.map_structure(lambda tensor: tensor[index], cut)
            return list(call(batch, first + index, step, old))

        sums = self._sum_all_shards(
            shard, [tf.TensorSpec(one.shape, one.dtype) for one in call.outputs]
        )
        count = len(sums) - len(averaged) - len(metrics)
        means = sums[count : count + len(averaged)]
        for variable, value in zip(averaged, means, strict=True):
            variable.assign(value / tf.cast(self.logical, value.dtype))
        added = sums[count + len(averaged) :]
        for variable, before, value in zip(metrics, totals, added, strict=True):
            variable.assign(before + keep_on_first_device(value))
        return sums[:count]

    @contextlib.contextmanager
    def _replica_scope(self, logical: tf.Tensor, step: tf.Tensor) -> Any:
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
        found = _sum_blocks(lambda block: block_sum(shard, block * size, size, like), blocks, like)
        return _sum_over_devices(found, like, self.physical)


def trace_function(function: Callable[..., Any], *arguments: Any) -> Any:
    """Returns a concrete function that is optimized alone, the same for any number of devices."""
    made = tf.function(function, autograph=False, experimental_attributes={"_noinline": True})
    specs = tf.nest.map_structure(tf.type_spec_from_value, arguments)
    return made.get_concrete_function(*specs)


def _sum_blocks(
    block_of: Callable[[tf.Tensor], Tensors], blocks: int, like: Sequence[tf.TensorSpec]
) -> list[tf.Tensor]:
    """Returns the sums of the blocks, flat: a tensor [blocks, n] for each dtype."""
    if blocks == 1:
        return _flatten_rows([tensor[tf.newaxis] for tensor in block_of(tf.constant(0))], 1)
    arrays = [tf.TensorArray(spec.dtype, size=blocks, element_shape=spec.shape) for spec in like]

    def take(block: tf.Tensor, arrays: Any) -> Any:
        sums = block_of(block)
        written = [a.write(block, one) for a, one in zip(arrays, sums, strict=True)]
        return block + 1, written

    _, arrays = tf.while_loop(
        lambda block, _: block < blocks, take, (tf.constant(0), arrays), parallel_iterations=1
    )
    return _flatten_rows([array.stack() for array in arrays], blocks)


def _flatten_rows(tensors: Tensors, rows: int) -> list[tf.Tensor]:
    return [
        tf.concat([tf.reshape(tensors[place], [rows, -1]) for place in places], axis=1)
        for places in _group_by_dtype(tensors)
    ]


def _group_by_dtype(tensors: Sequence[Any]) -> list[list[int]]:
    groups: dict[tf.DType, list[int]] = {}
    for place, tensor in enumerate(tensors):
        groups.setdefault(tensor.dtype, []).append(place)
    return [*groups.values()]


def _sum_over_devices(
    found: list[tf.Tensor], like: Sequence[tf.TensorSpec], devices: int
) -> Tensors:
    """Returns the sums of all devices' blocks, which every device adds in the same tree."""
    sums: list[Any] = [None] * len(like)
    for flat, places in zip(found, _group_by_dtype(like), strict=True):
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


def metric_variables(metrics: Collection[Any]) -> list[tf.Variable]:
    """Returns the variables of metrics, each once."""
    found = [variable for metric in metrics for variable in getattr(metric, "variables", ())]
    return list({id(variable): variable for variable in found}.values())
