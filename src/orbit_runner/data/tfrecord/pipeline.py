"""Datasets over TFRecord files, in which a batch is a function of (seed, step)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from orbit_runner.data.augment import CropFlip, crop_flip
from orbit_runner.data.images.readers import set_batch_size
from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.order.epochs import NO_EXAMPLES
from orbit_runner.data.order.mixture import Mixture
from orbit_runner.data.order.sharding import ReplicaSlices, count_eval_steps, replica_slices
from orbit_runner.data.service import apply_on_services
from orbit_runner.data.tfrecord.bad_record import ReadingOrder, remember_order
from orbit_runner.data.tfrecord.example_reader import ExampleReader, RecordNames
from orbit_runner.data.tfrecord.random_access import add_records
from orbit_runner.data.tfrecord.reader import Reader
from orbit_runner.data.tfrecord.source import JoinedRecords, RecordSource

if TYPE_CHECKING:
    from orbit_runner.data.order.arrays import Array
    from orbit_runner.utils.types import Tensors


class Decoder:
    """Decodes serialized examples to images and labels; an error names the first invalid example.

    All images must have the shape of the source. `num_classes` is one more than the largest valid
    label; if it is None, labels are not checked.
    """

    def __init__(self, source: RecordSource, num_classes: int | None) -> None:
        self._names = RecordNames(source)
        self._image, self._label = source.image_key, source.label_key
        self._features = {
            self._image: tf.io.FixedLenFeature([], tf.string),
            self._label: tf.io.FixedLenFeature([], tf.int64),
        }
        self._offset = source.label_offset
        self._shape = source.image_shape
        self._num_classes = num_classes

    def __call__(self, records: tf.Tensor, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns `image`, uint8 [b, height, width, channels], and `label`, int32 [b].

        `records` are serialized examples, string [b] with a static b. `ids`, int64 [b], are their
        indices.
        """
        parsed = tf.io.parse_example(records, self._features)
        # One op per image in a single call is three times as fast as one call per image, and faster
        # than `tf.map_fn`. The op decodes JPEG too.
        encoded = tf.unstack(parsed[self._image], records.shape[0])
        images = [tf.io.decode_png(image, channels=self._shape[2]) for image in encoded]
        shapes = tf.stack([tf.shape(image) for image in images])
        same = tf.reduce_all(shapes == self._shape, axis=1)
        expected = f"{list(self._shape)} as in the first record: all images must have the same size"
        size = self._shape + self._zero_or_raise(same, "an image of shape", shapes, expected, ids)
        image = tf.stack([tf.reshape(image, size) for image in images])
        return {
            "image": tf.ensure_shape(image, [len(images), *self._shape]),
            "label": self._check_labels(parsed[self._label] - self._offset, ids),
        }

    def _check_labels(self, labels: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        if self._num_classes is None:
            return tf.cast(labels, tf.int32)
        known = (labels >= 0) & (labels < self._num_classes)
        zero = self._zero_or_raise(known, "label", labels, f"0 to {self._num_classes - 1}", ids)
        return tf.cast(labels, tf.int32) + zero

    def _zero_or_raise(
        self, good: tf.Tensor, what: str, got: tf.Tensor, expected: str, ids: tf.Tensor
    ) -> tf.Tensor:
        """Returns int32 0 if all are good; otherwise the op raises an error when it runs."""
        bad = tf.argmin(tf.cast(good, tf.int32))
        message = tf.strings.format(f": got {what} {{}}, expected {expected}", got[bad])
        problem = tf.strings.join([self._names(ids[bad : bad + 1])[0], message])
        # `to_number` raises an error with the text in its message. `tf.debugging.Assert` is
        # stateful, so with op determinism tf.data would decode one batch at a time.
        return tf.strings.to_number(tf.where(tf.reduce_all(good), "0", problem), tf.int32)


_Tree = dict[str, Any]
_ENDLESS = 2**62


def train_records(
    source: RecordSource,
    *,
    global_batch_size: int,
    seed: int,
    start_step: int | tf.Tensor = 0,
    shuffle_buffer_size: int = 1,
    excluded: np.ndarray = NO_EXAMPLES,
    augmentation: CropFlip | None = None,
    num_classes: int | None = None,
    input_context: tf.distribute.InputContext | None = None,
    options: PipelineOptions = PipelineOptions(),
    element: Callable[[_Tree], Tensors] | None = None,
) -> tf.data.Dataset:
    """Returns the infinite dataset of one worker's training batches.

    An element is a dictionary of `image` and `label` for one replica, with static shapes
    [global_batch_size // replicas, ...]; `element` may convert it into another structure of the
    same tensors. The examples of a step depend only on `seed`, `shuffle_buffer_size` and the step,
    not on the step at which training started or on the number of replicas. Starting at a later step
    takes no longer than starting at step 0.

    In a graph, `start_step` may be an int64 scalar tensor. In each epoch, blocks of 64 records are
    shuffled, and then records are shuffled within windows of `shuffle_buffer_size` records; if it
    is 0 or 1, records are in stored order. `excluded`, int64 [k], are the records to
    leave out, ascending. If `num_classes` is None, labels are not checked. If `input_context` is
    None, an element is the global batch. Raises DataError if the global batch size is not a
    multiple of the number of replicas.
    """
    slices = replica_slices(global_batch_size, input_context)
    decode = Decoder(source, num_classes)

    def batch(records: tf.Tensor, ids: tf.Tensor, epochs: tf.Tensor) -> Tensors:
        examples = decode(*_set_batch_size(slices.batch_size, records, ids))
        if augmentation is not None:
            examples["image"] = crop_flip(examples["image"], augmentation, seed, ids, epochs)
        return examples if element is None else element(examples)

    rows = training_rows(source, slices, seed, start_step, shuffle_buffer_size, excluded)
    # With a finite dataset, a distributed iterator would check in each step whether the data of any
    # replica has ended.
    endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
    batches = _decode_batches(rows, batch, options)
    return options.add_prefetch(batches.apply(endless)).with_options(options.tf_options())


def eval_records(
    source: RecordSource,
    *,
    global_batch_size: int,
    drop_remainder: bool = False,
    num_classes: int | None = None,
    input_context: tf.distribute.InputContext | None = None,
    options: PipelineOptions = PipelineOptions(),
    cache: bool = False,
    element: Callable[[_Tree, tf.Tensor], Tensors] | None = None,
) -> tf.data.Dataset:
    """Returns the dataset of one worker's evaluation batches: each record once, in order.

    An element is a pair of a batch for one replica, as in `train_records`, and float32 weights
    [global_batch_size // replicas]; `element` may convert it into another structure of the same
    tensors. The last batch is padded with record 0, whose weight is 0; all other weights are 1. If
    `cache` is true, batches are kept in memory after the first pass. Raises DataError if the global
    batch size is not a multiple of the number of replicas, or if there is no step.
    """
    slices = replica_slices(global_batch_size, input_context)
    steps = count_eval_steps(source.name, source.size, global_batch_size, drop_remainder)
    decode = Decoder(source, num_classes)
    count = slices.elements(steps)

    def batch(records: tf.Tensor, ids: tf.Tensor, weights: tf.Tensor) -> Tensors:
        examples = decode(*_set_batch_size(slices.batch_size, records, ids))
        weights = tf.ensure_shape(weights, [slices.batch_size])
        return (examples, weights) if element is None else element(examples, weights)

    rows = evaluation_rows(source, slices, steps)
    batches = rows.rebatch(slices.batch_size).take(count)
    batches = _decode_batches(batches, batch, options)
    if cache:
        batches = batches.cache()
    batches = options.add_prefetch(batches).apply(tf.data.experimental.assert_cardinality(count))
    return batches.with_options(options.tf_options())


def training_rows(
    source: RecordSource,
    slices: ReplicaSlices,
    seed: int,
    start_step: int | tf.Tensor,
    shuffle_buffer_size: int,
    excluded: np.ndarray = NO_EXAMPLES,
) -> tf.data.Dataset:
    """Returns the infinite dataset of the records of a pipeline's training batches.

    An element is a batch of serialized records, string [b], their indices and their epochs, both
    int64 [b]. `excluded`, int64 [k], are the records to leave out, ascending.
    """
    reader = Reader(source, seed, shuffle_buffer_size, excluded)
    shuffle = shuffle_buffer_size > 1
    left_out = frozenset(excluded.tolist())
    remember_order(source, ReadingOrder(seed, shuffle, slices.global_batch_size, left_out))
    rows = reader.rows(
        start=start_step * slices.global_batch_size,
        epochs=_ENDLESS,
        keep=lambda positions: select_own_positions(slices, positions, start_step),
    )
    return rows.rebatch(slices.batch_size)


def select_own_positions(
    slices: ReplicaSlices, positions: Array, start_step: int | tf.Tensor = 0
) -> Array:
    """Returns which positions belong to the pipeline: those of `slices.positions`, bool [k].

    `positions` is a NumPy array or a tensor, int64 [k]. No position may be before `start_step`, the
    step at which all pipelines start.
    """
    step = positions // slices.global_batch_size
    replica = (positions - step * slices.global_batch_size) // slices.batch_size
    turn = step - (start_step + slices.first_step)
    here = (replica >= slices.first_replica) & (replica < slices.first_replica + slices.replicas)
    return here & (turn % slices.step_stride == 0)


def evaluation_rows(source: RecordSource, slices: ReplicaSlices, steps: int) -> tf.data.Dataset:
    """Returns the dataset of the records of a pipeline's evaluation batches: each once, in order.

    An element has any length k: serialized records, string [k], their indices, int64 [k], and
    weights, float32 [k], 0 for records that pad the last batch.
    """
    reader = Reader(source, 0, 1)
    positions = steps * slices.global_batch_size
    remember_order(source, ReadingOrder(0, shuffle=False, global_batch_size=0))

    def add_weights(records: tf.Tensor, ids: tf.Tensor, epochs: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return records, ids, tf.cast(epochs == 0, tf.float32)

    rows = reader.rows(
        start=0, epochs=1, keep=lambda places: select_own_positions(slices, places)
    ).map(add_weights)
    missing = int(
        select_own_positions(slices, np.arange(reader.size, max(reader.size, positions))).sum()
    )
    if not missing:
        return rows
    filling = reader.rows(start=0, epochs=1, keep=lambda places: places == 0).take(1)
    fill = tf.zeros([missing], tf.int64)
    return rows.concatenate(
        filling.map(lambda records, *_: (tf.gather(records, fill), fill, tf.cast(fill, tf.float32)))
    )


def _set_batch_size(size: int, *tensors: tf.Tensor) -> list[tf.Tensor]:
    return [tf.ensure_shape(tensor, [size]) for tensor in tensors]


def _decode_batches(
    raw: tf.data.Dataset, batch: Callable[..., Tensors], options: PipelineOptions
) -> tf.data.Dataset:
    return apply_on_services(
        options.services, raw, lambda d: d.map(batch, num_parallel_calls=tf.data.AUTOTUNE)
    )


class RecordReader(ExampleReader):
    """Reads images in TFRecord files, in blocks."""

    dataset: RecordSource

    def training_columns(
        self,
        slices: ReplicaSlices,
        seed: int,
        start_step: int | tf.Tensor,
        shuffle_buffer_size: int,
        excluded: np.ndarray = NO_EXAMPLES,
        mixture: Mixture | None = None,
    ) -> tf.data.Dataset:
        """Returns an endless dataset of the columns of a pipeline's training batches."""
        rows = training_rows(self.dataset, slices, seed, start_step, shuffle_buffer_size, excluded)
        return rows.map(
            lambda record, ids, epochs: set_batch_size(
                slices.batch_size, {"record": record, "id": ids, "epoch": epochs}
            )
        )

    def evaluation_columns(self, slices: ReplicaSlices, steps: int) -> tf.data.Dataset:
        """Returns a dataset of the columns of a pipeline's evaluation batches."""
        rows = evaluation_rows(self.dataset, slices, steps).rebatch(slices.batch_size)
        return rows.take(slices.elements(steps)).map(
            lambda record, ids, weights: set_batch_size(
                slices.batch_size,
                {"record": record, "id": ids, "epoch": tf.zeros_like(ids), "weight": weights},
            )
        )


class JoinedRecordReader(RecordReader):
    """Reads images in the TFRecord files of a mixture: by their numbers, in training."""

    dataset: JoinedRecords

    def training_columns(
        self,
        slices: ReplicaSlices,
        seed: int,
        start_step: int | tf.Tensor,
        shuffle_buffer_size: int,
        excluded: np.ndarray = NO_EXAMPLES,
        mixture: Mixture | None = None,
    ) -> tf.data.Dataset:
        """Returns an endless dataset of the columns of a pipeline's training batches."""
        kind = ExampleReader if mixture is not None else RecordReader
        return kind.training_columns(
            self, slices, seed, start_step, shuffle_buffer_size, excluded, mixture
        )

    def _add_records(self, columns: tf.data.Dataset) -> tf.data.Dataset:
        return add_records(self.dataset, columns)
