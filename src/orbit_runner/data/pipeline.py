"""Pipelines of tf.data over arrays in memory, in which a batch is a function of (seed, step)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from orbit_runner.data.augment import CropFlip, CroppedImages
from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.sampling import IndexSampler
from orbit_runner.data.service import made_by
from orbit_runner.data.slicing import replica_slices
from orbit_runner.data.source import ArraySource, leaves
from orbit_runner.data.table import Table
from orbit_runner.errors import DataError

__all__ = ["PipelineOptions", "eval_dataset", "eval_steps", "train_batches", "train_dataset"]

_Tree = dict[str, Any]
_Read = Callable[[tf.Tensor, tf.Tensor], _Tree]

_CHUNK_EXAMPLES = 4096
_CHUNK_BYTES = 2**22
_ENDLESS = 2**62


def train_dataset(
    source: ArraySource,
    *,
    global_batch_size: int,
    seed: int,
    start_step: int | tf.Tensor = 0,
    shuffle: bool = True,
    augmentation: CropFlip | None = None,
    input_context: tf.distribute.InputContext | None = None,
    options: PipelineOptions = PipelineOptions(),  # noqa: B008
    element: Callable[[_Tree], Any] | None = None,
) -> tf.data.Dataset:
    """Makes the endless pipeline of one worker's training batches.

    The examples of a step depend on `seed` and the step alone: not on where training started, nor
    on the number of replicas. To be distributed by `strategy.distribute_datasets_from_function`.

    Args:
        source: The examples.
        global_batch_size: Examples of a step on all replicas.
        seed: Seed of the order and of the augmentation.
        start_step: The step of the first batch; in a graph, an int64 scalar tensor as well.
        shuffle: Whether each epoch has an order of its own; as stored otherwise.
        augmentation: How to vary `image`, if at all.
        input_context: Which slice of each batch to make; all of it if None.
        options: How tf.data runs it.
        element: Turns a batch into another structure of the same tensors, such as a tuple. Cheaper
            here than in a `map` afterwards, which costs each step.

    Returns:
        Batches for one replica, with the structure of the source and static shapes
        [global_batch_size // replicas, ...].

    Raises:
        DataError: The batch does not divide by the replicas, or there are no images to augment.
    """
    slices = replica_slices(global_batch_size, input_context)
    sampler = IndexSampler(source.size, seed, shuffle)
    read = _reader(source, augmentation, seed)
    length = _chunk_length(source, slices.batch_size)

    def chunk(first: tf.Tensor) -> Any:
        positions = slices.positions(tf.range(first, first + length), start_step)
        batches = _read_batches(read, positions, *sampler(tf.reshape(positions, [-1])))
        return batches if element is None else element(batches)

    firsts = tf.data.Dataset.range(0, _ENDLESS, length)
    chunks = made_by(
        options.services, firsts, lambda d: d.map(chunk, num_parallel_calls=tf.data.AUTOTUNE)
    )
    # A finite set would make a distributed iterator ask all replicas every step whether it ended.
    endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
    batches = _ahead(chunks, options, length).unbatch().apply(endless)
    return batches.with_options(options.tf_options())


def train_batches(
    source: ArraySource,
    *,
    global_batch_size: int,
    seed: int,
    shuffle: bool = True,
    augmentation: CropFlip | None = None,
    element: Callable[[_Tree], Any] | None = None,
) -> Callable[[tf.Tensor], Any]:
    """Makes what gives the batches that `train_dataset` gives, by the numbers of their steps.

    For graphs that begin at another step each time: to make a pipeline in them takes a tenth of a
    second.

    Args:
        source: The examples.
        global_batch_size: Examples of a step.
        seed: Seed of the order and of the augmentation.
        shuffle: Whether each epoch has an order of its own; as stored otherwise.
        augmentation: How to vary `image`, if at all.
        element: Turns a batch into another structure of the same tensors, such as a tuple.

    Returns:
        A function from the number of a step, int64 scalar, to its batch.

    Raises:
        DataError: There are no images to augment.
    """
    slices = replica_slices(global_batch_size, None)
    sampler = IndexSampler(source.size, seed, shuffle)
    read = _reader(source, augmentation, seed)

    def batch(step: tf.Tensor) -> Any:
        # The rows lie in the memory of the host, and are many.
        with tf.device("CPU:0"):
            positions = slices.positions(step[tf.newaxis])
            batches = _read_batches(read, positions, *sampler(positions[0]))
            one = tf.nest.map_structure(lambda tensor: tensor[0], batches)
        return one if element is None else element(one)

    return batch


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


def checked_eval_steps(name: str, size: int, global_batch_size: int, drop_remainder: bool) -> int:
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


def eval_dataset(
    source: ArraySource,
    *,
    global_batch_size: int,
    drop_remainder: bool = False,
    input_context: tf.distribute.InputContext | None = None,
    options: PipelineOptions = PipelineOptions(),  # noqa: B008
    cache: bool = False,
    element: Callable[[_Tree, tf.Tensor], Any] | None = None,
) -> tf.data.Dataset:
    """Makes the pipeline of one worker's evaluation batches: each example once, in order.

    Args:
        source: The examples.
        global_batch_size: Examples of a step on all replicas.
        drop_remainder: Whether a last, part-filled batch is left out.
        input_context: Which slice of each batch to make; all of it if None.
        options: How tf.data runs it.
        cache: Whether batches stay in memory after the first pass.
        element: Turns a batch and its weights into another structure of the same tensors.

    Returns:
        Pairs of a batch for one replica, as in training, and float32 weights
        [global_batch_size // replicas]. The last batch is filled up with example 0 at weight 0;
        all other weights are 1.

    Raises:
        DataError: The batch does not divide by the replicas, or no step is left.
    """
    slices = replica_slices(global_batch_size, input_context)
    steps = checked_eval_steps(source.name, source.size, global_batch_size, drop_remainder)
    read, count = _reader(source, None, 0), slices.elements(steps)
    length = _chunk_length(source, slices.batch_size)

    def chunk(first: tf.Tensor) -> Any:
        positions = slices.positions(tf.range(first, tf.minimum(first + length, count)))
        real = positions < source.size
        ids = tf.reshape(tf.where(real, positions, 0), [-1])
        batches = _read_batches(read, positions, ids, tf.zeros_like(ids))
        pair = batches, tf.cast(real, tf.float32)
        return pair if element is None else element(*pair)

    firsts = tf.data.Dataset.range(0, count, length)
    chunks = made_by(
        options.services, firsts, lambda d: d.map(chunk, num_parallel_calls=tf.data.AUTOTUNE)
    )
    if cache:
        chunks = chunks.cache()
    batches = _ahead(chunks, options, length).unbatch()
    batches = batches.apply(tf.data.experimental.assert_cardinality(count))
    return batches.with_options(options.tf_options())


def _reader(source: ArraySource, augmentation: CropFlip | None, seed: int) -> _Read:
    if augmentation is not None and np.ndim(source.arrays.get("image", 0)) != 4:
        raise DataError(
            f"{source.name}: got arrays {', '.join(path for path, _ in leaves(source.arrays))}, "
            "expected images [n, height, width, channels] to augment in `image`",
            field="augment",
        )
    if augmentation is None:
        readers: Any = tf.nest.map_structure(Table, source.arrays)
    else:
        images = source.arrays["image"]
        others = {name: array for name, array in source.arrays.items() if name != "image"}
        readers = tf.nest.map_structure(Table, others)
        readers["image"] = CroppedImages(images, augmentation, seed)
    return lambda ids, epochs: tf.nest.map_structure(lambda read: read(ids, epochs), readers)


def _read_batches(read: _Read, positions: tf.Tensor, ids: tf.Tensor, epochs: tf.Tensor) -> _Tree:
    batch_size = positions.shape[1]

    def stack(rows: tf.Tensor) -> tf.Tensor:
        return tf.reshape(rows, [-1, batch_size, *rows.shape[1:]])

    return tf.nest.map_structure(stack, read(ids, epochs))


def _chunk_length(source: ArraySource, batch_size: int) -> int:
    # Several batches in one call, for a call costs as much as a small batch.
    example = sum(array[:1].nbytes for _, array in leaves(source.arrays))
    by_memory = _CHUNK_BYTES // max(1, example * batch_size)
    return max(1, min(_CHUNK_EXAMPLES // batch_size, by_memory))


def _ahead(chunks: tf.data.Dataset, options: PipelineOptions, length: int) -> tf.data.Dataset:
    # Before `unbatch`: handing over single small batches costs more than cutting them off.
    if options.prefetch is None:
        return chunks.prefetch(tf.data.AUTOTUNE)
    return chunks.prefetch(-(-options.prefetch // length)) if options.prefetch else chunks
