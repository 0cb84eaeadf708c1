"""Batches of in-memory arrays, each a function of (seed, step), and tf.data pipelines of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from orbit_runner.data.arrays import Gathered, is_text, leaves, tree_of
from orbit_runner.data.augment import CropFlip, CroppedImages
from orbit_runner.data.chunks import Chunks, endless_dataset, one_pass_dataset
from orbit_runner.data.images.decode_errors import read_in_python
from orbit_runner.data.indexed import indexed_arrays
from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.order.epochs import NO_EXAMPLES
from orbit_runner.data.order.mixture import Mixture, make_order
from orbit_runner.data.order.sharding import count_eval_steps, replica_slices
from orbit_runner.data.order.tf_arrays import TENSORFLOW
from orbit_runner.data.source import ArraySource
from orbit_runner.data.stored_tensor import Table
from orbit_runner.errors import DataError

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors

__all__ = ["PipelineOptions", "eval_chunks", "eval_dataset", "train_chunks", "train_dataset"]

_Tree = dict[str, Any]
_Read = Callable[[tf.Tensor, tf.Tensor], _Tree]

_CHUNK_EXAMPLES = 4096
_CHUNK_BYTES = 2**22


def train_dataset(
    source: ArraySource,
    *,
    global_batch_size: int,
    seed: int,
    start_step: int | tf.Tensor = 0,
    shuffle: bool = True,
    excluded: np.ndarray = NO_EXAMPLES,
    mixture: Mixture | None = None,
    augmentation: CropFlip | None = None,
    input_context: tf.distribute.InputContext | None = None,
    options: PipelineOptions = PipelineOptions(),
    element: Callable[[_Tree], Tensors] | None = None,
) -> tf.data.Dataset:
    """Returns the endless dataset of one worker's training batches.

    The examples of a step depend only on `seed` and the step, not on the step at which training
    started or on the number of replicas. Distribute the dataset with
    `strategy.distribute_datasets_from_function`.

    Args:
        source: The examples.
        global_batch_size: Number of examples per step, on all replicas.
        seed: Seed of the order and of the augmentation.
        start_step: The step of the first batch. In a graph, it can be an int64 scalar tensor.
        shuffle: Whether to shuffle each epoch. If False, examples keep their stored order.
        excluded: Indices of the examples to leave out, int64 [k], ascending.
        mixture: The groups that examples are drawn from; they must not contain `excluded`. If None,
            each epoch has each example once.
        augmentation: The random crop and flip of `image`. None for no augmentation.
        input_context: Selects the worker's slice of each batch. If None, the whole batch is used.
        options: Options of the tf.data pipeline.
        element: Converts a batch into another structure of the same tensors, such as a tuple. This
            is cheaper than a `map` of the returned dataset, which takes time in each step.

    Returns:
        Batches for one replica, with the structure of the source and static shapes
        [global_batch_size // replicas, ...].

    Raises:
        DataError: The batch is not divisible by the number of replicas, or there are no images to
            augment.
    """
    slices = replica_slices(global_batch_size, input_context)
    chunks = train_chunks(
        source,
        global_batch_size=global_batch_size,
        replicas=slices.replicas_in_sync,
        seed=seed,
        shuffle=shuffle,
        excluded=excluded,
        mixture=mixture,
        augmentation=augmentation,
        element=element,
    )
    return endless_dataset(chunks, slices, start_step, options)


def eval_dataset(
    source: ArraySource,
    *,
    global_batch_size: int,
    drop_remainder: bool = False,
    input_context: tf.distribute.InputContext | None = None,
    options: PipelineOptions = PipelineOptions(),
    cache: bool = False,
    element: Callable[[_Tree, tf.Tensor], Tensors] | None = None,
) -> tf.data.Dataset:
    """Returns the dataset of one worker's evaluation batches: each example once, in order.

    Args:
        source: The examples.
        global_batch_size: Number of examples per step, on all replicas.
        drop_remainder: Whether to drop a last batch that is not full.
        input_context: Selects the worker's slice of each batch. If None, the whole batch is used.
        options: Options of the tf.data pipeline.
        cache: Whether to keep the batches in memory after the first pass.
        element: Converts a batch and its weights into another structure of the same tensors.

    Returns:
        Pairs of a batch for one replica, as in training, and float32 weights
        [global_batch_size // replicas]. The last batch is padded with copies of example 0, whose
        weight is 0. All other weights are 1.

    Raises:
        DataError: The batch is not divisible by the number of replicas, or `drop_remainder` leaves
            no batch.
    """
    slices = replica_slices(global_batch_size, input_context)
    chunks = eval_chunks(
        source,
        global_batch_size=global_batch_size,
        replicas=slices.replicas_in_sync,
        drop_remainder=drop_remainder,
        element=element,
    )
    return one_pass_dataset(chunks, slices, options, cache=cache)


def train_chunks(
    source: ArraySource,
    *,
    global_batch_size: int,
    seed: int,
    replicas: int = 1,
    shuffle: bool = True,
    excluded: np.ndarray = NO_EXAMPLES,
    mixture: Mixture | None = None,
    augmentation: CropFlip | None = None,
    element: Callable[[_Tree], Tensors] | None = None,
) -> Chunks:
    """Returns the batches of `train_dataset`, which never end, addressed by step.

    `element` converts batches into another structure of the same tensors, such as a tuple.
    `excluded`, int64 [k], are the examples to leave out, ascending. `mixture` must not contain
    them. Raises `DataError` if `augmentation` is set and there are no images [n, height, width,
    channels].
    """
    order = make_order(source.size, seed, shuffle, excluded, mixture, TENSORFLOW)
    read = _make_reader(source, augmentation, seed)
    batch_size = global_batch_size // replicas

    def make(positions: tf.Tensor) -> Tensors:
        rows = order(tf.reshape(positions, [-1]))
        batches = _read_batches(read, positions, rows.examples, rows.epochs)
        return batches if element is None else element(batches)

    return Chunks(
        make=make,
        global_batch_size=global_batch_size,
        batch_size=batch_size,
        length=_batches_per_call(source, batch_size),
        nbytes=_nbytes(source),
    )


def eval_chunks(
    source: ArraySource,
    *,
    global_batch_size: int,
    replicas: int = 1,
    drop_remainder: bool = False,
    element: Callable[[_Tree, tf.Tensor], Tensors] | None = None,
) -> Chunks:
    """Returns the batches of one pass of `eval_dataset`, addressed by step.

    They are pairs of batches and float32 weights, or what `element` returns for them. Raises
    `DataError` if `drop_remainder` leaves no batch.
    """
    steps = count_eval_steps(source.name, source.size, global_batch_size, drop_remainder)
    read = _make_reader(source, None, 0)
    batch_size = global_batch_size // replicas

    def make(positions: tf.Tensor) -> Tensors:
        real = positions < source.size
        ids = tf.reshape(tf.where(real, positions, 0), [-1])
        batches = _read_batches(read, positions, ids, tf.zeros_like(ids))
        pair = batches, tf.cast(real, tf.float32)
        return pair if element is None else element(*pair)

    return Chunks(
        make=make,
        global_batch_size=global_batch_size,
        batch_size=batch_size,
        length=_batches_per_call(source, batch_size),
        nbytes=_nbytes(source),
        steps=steps,
    )


def _make_reader(source: ArraySource, augmentation: CropFlip | None, seed: int) -> _Read:
    if augmentation is not None and np.ndim(source.arrays.get("image", 0)) != 4:
        raise DataError(
            f"{source.name}: got arrays {', '.join(path for path, _ in leaves(source.arrays))}, "
            "expected `image`, with images [n, height, width, channels] to augment",
            field="augment",
            code="bad-data",
        )
    if indexed := indexed_arrays(source):
        return _make_indexed_reader(source, indexed[0])
    if augmentation is None:
        readers = tf.nest.map_structure(Table, source.arrays)
    else:
        images = source.arrays["image"]
        others = {name: array for name, array in source.arrays.items() if name != "image"}
        readers = tf.nest.map_structure(Table, others)
        readers["image"] = CroppedImages(images, augmentation, seed)
    return lambda ids, epochs: tf.nest.map_structure(lambda read: read(ids, epochs), readers)


def _make_indexed_reader(source: ArraySource, first: Gathered) -> _Read:
    """Returns the function that reads the examples of an object in Python."""
    arrays = dict(leaves(source.arrays))
    numbers = np.asarray(first.codes)
    specs = [
        (tf.string if is_text(array) else tf.as_dtype(array.dtype), array.shape[1:])
        for array in arrays.values()
    ]

    def read_rows(ids: list[int]) -> list[np.ndarray]:
        rows = first.values.reader.read(numbers[ids].tolist())
        return [np.stack(rows[path]) for path in arrays]

    def read(ids: tf.Tensor, epochs: tf.Tensor) -> _Tree:
        del epochs
        return tree_of(dict(zip(arrays, read_in_python(read_rows, ids, specs), strict=True)))

    return read


def _read_batches(read: _Read, positions: tf.Tensor, ids: tf.Tensor, epochs: tf.Tensor) -> _Tree:
    batch_size = positions.shape[1]

    def stack(rows: tf.Tensor) -> tf.Tensor:
        return tf.reshape(rows, [-1, batch_size, *rows.shape[1:]])

    return tf.nest.map_structure(stack, read(ids, epochs))


def _batches_per_call(source: ArraySource, batch_size: int) -> int:
    # Several batches per call, because a call costs as much as a small batch.
    if indexed_arrays(source):  # A batch may take long to read.
        return 1
    example = sum(
        math.prod(array.shape[1:]) * array.dtype.itemsize for _, array in leaves(source.arrays)
    )
    by_memory = _CHUNK_BYTES // max(1, example * batch_size)
    return max(1, min(_CHUNK_EXAMPLES // batch_size, by_memory))


def _nbytes(source: ArraySource) -> int:
    return sum(array.nbytes for _, array in leaves(source.arrays))
