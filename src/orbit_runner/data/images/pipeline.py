"""tf.data pipelines over images of any size, in which a batch is a function of (seed, step)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from orbit_runner.data.augment import CropFlip, crop_flip
from orbit_runner.data.images.dataset import ImageDataset
from orbit_runner.data.images.decode import decode_window
from orbit_runner.data.images.decode_errors import BadImages, zero_or_raise
from orbit_runner.data.images.mixing import Mixer, Mixing
from orbit_runner.data.images.readers import ImageReader, make_reader
from orbit_runner.data.images.train_image import Preprocessing, augment
from orbit_runner.data.options import PipelineOptions, apply_on_services
from orbit_runner.data.order.epochs import NO_EXAMPLES
from orbit_runner.data.order.mixture import Mixture
from orbit_runner.data.order.sharding import count_eval_steps, replica_slices
from orbit_runner.errors import DataError, format_count

if TYPE_CHECKING:
    from orbit_runner.data.images.readers import Columns

# From (raw image, example number, epoch) to uint8 [height, width, channels].
MakeImage = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
# Keeps all cores busy if batches are small.
_IMAGES_AT_ONCE = 32


def decode_batches(
    batches: tf.data.Dataset, make: MakeImage, shape: tuple[int, int, int], batch_size: int
) -> tf.data.Dataset:
    """Returns the batches with decoded images, in the same order.

    The input has the columns `raw`, `id`, `epoch` and others, [b]. In the result, `image` (uint8
    [b, *shape], zeros if decoding failed) and `good` (bool [b]) replace `raw`.

    The images of a batch form a dataset that ignores errors, with an extra last row so that it is
    never empty. Images that are missing in it have failed. This takes one dataset per batch instead
    of one per image, and blocks no thread.
    """
    end = tf.data.Dataset.from_tensors((batch_size, tf.zeros(shape, tf.uint8)))

    def decode_images(columns: Columns) -> tf.data.Dataset:
        keys = tf.range(batch_size), columns["raw"], columns["id"], columns["epoch"]
        rows = tf.data.Dataset.from_tensor_slices(keys).map(
            lambda place, *key: (place, tf.ensure_shape(make(*key), shape)),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        decoded = rows.ignore_errors().concatenate(end).batch(batch_size + 1)
        rest = {name: column for name, column in columns.items() if name != "raw"}
        return tf.data.Dataset.zip((decoded, tf.data.Dataset.from_tensors(rest)))

    def join_images(decoded: tuple[tf.Tensor, tf.Tensor], rest: Columns) -> Columns:
        places, rows = decoded
        index = places[:-1, tf.newaxis]
        good = tf.scatter_nd(index, tf.ones_like(places[:-1]), [batch_size]) > 0
        image = tf.cond(
            tf.size(places) == batch_size + 1,
            lambda: rows[:-1],
            lambda: tf.scatter_nd(index, rows[:-1], [batch_size, *shape]),
        )
        return rest | {"image": tf.ensure_shape(image, [batch_size, *shape]), "good": good}

    cycle = 1 + -(-_IMAGES_AT_ONCE // batch_size)
    pieces = batches.interleave(
        decode_images, cycle_length=cycle, num_parallel_calls=cycle, deterministic=True
    )
    return pieces.map(join_images, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


Shape = tuple[int, int, int]


def decode_at_once(reader: ImageReader[ImageDataset], batch: Columns, shape: Shape) -> Columns:
    """Returns a batch with the images of all files in `raw`, which must have the same shape.

    One op per image in a single call is three times as fast as one call per image, and faster than
    `tf.map_fn`. An error names the first image of another shape.
    """
    # The op decodes JPEG, too.
    images = [tf.io.decode_png(raw, channels=shape[2]) for raw in tf.unstack(batch["raw"])]
    shapes = tf.stack([tf.shape(image) for image in images])
    has_shape = tf.reduce_all(shapes == shape, axis=1)

    def problem() -> tf.Tensor:
        other = tf.argmin(tf.cast(has_shape, tf.int32))
        expected = f"{list(shape)} as in the first record: all images must have the same size"
        text = f": got an image of shape {{}}, expected {expected}"
        names = reader.names(batch["id"][other : other + 1])
        return names[0] + tf.strings.format(text, shapes[other])

    size = shape + zero_or_raise(tf.reduce_all(has_shape), problem)
    image = tf.stack([tf.reshape(image, size) for image in images])
    rest = {name: column for name, column in batch.items() if name != "raw"}
    return rest | {
        "image": tf.ensure_shape(image, [len(images), *shape]),
        "good": tf.ones([len(images)], tf.bool),
    }


def train_images(
    dataset: ImageDataset,
    *,
    shape: Shape,
    resize: bool,
    global_batch_size: int,
    seed: int,
    bad: BadImages,
    start_step: int | tf.Tensor = 0,
    shuffle_buffer_size: int = 1,
    excluded: np.ndarray = NO_EXAMPLES,
    mixture: Mixture | None = None,
    preprocessing: Preprocessing = Preprocessing(),
    augmentation: CropFlip | None = None,
    mixing: Mixing | None = None,
    num_classes: int | None = None,
    input_context: tf.distribute.InputContext | None = None,
    options: PipelineOptions = PipelineOptions(),
) -> tf.data.Dataset:
    """Returns the endless dataset of one worker's training batches, each for one replica.

    Pixels, labels and their order depend only on `seed` and the step, not on the step at which
    training started or on the number of replicas. A batch has `image` (uint8 [b, *shape]), `label`
    (int32 [b], or float32 [b, num_classes] with `mixing`) and `weight` (float32 [b], 0 for images
    that cannot be decoded).

    `shape` is the (height, width, channels) of the network's input. If `resize` is True,
    `preprocessing` brings images to that shape; otherwise they must have it. `augmentation` and
    `mixing` are applied after that. If `shuffle_buffer_size` is 0 or 1, examples are in stored
    order; records are shuffled in blocks and windows. `excluded`, int64 [k], are the examples to
    leave out, ascending; `mixture`, the groups that examples are drawn from, must not contain them.
    `num_classes` is one more than the largest valid label; None if labels are not checked. In a
    graph, `start_step` can be an int64 scalar tensor.

    Raises `DataError` if the batch is not divisible by the number of replicas, or if `mixing` is
    set and the batch size per replica is odd.
    """
    slices = replica_slices(global_batch_size, input_context)
    reader = make_reader(dataset)
    _check_services(reader, options)
    if mixing is not None and slices.batch_size % 2:
        raise DataError(
            f"got {format_count(slices.batch_size, 'example')} per replica, expected an even "
            "number: mixup_and_cutmix mixes pairs",
            field="global_batch_size",
            code="not-divisible",
        )
    mixer = None if mixing is None else Mixer(mixing, seed)

    def augment_batch(batch: Columns) -> Columns:
        key = batch["id"], batch["epoch"]
        if augmentation is not None:
            batch["image"] = crop_flip(batch["image"], augmentation, seed, *key)
        if mixer is not None:
            mixed = mixer(batch["image"], batch["label"], batch["good"], *key)
            batch["image"], batch["label"] = mixed
        return batch

    decode = _make_decoder(
        reader, shape, resize, slices.batch_size, num_classes, bad, seed, preprocessing
    )

    def decode_columns(columns: tf.data.Dataset) -> tf.data.Dataset:
        batches = decode(columns)
        if augmentation is None and mixer is None:
            return batches
        return batches.map(augment_batch, num_parallel_calls=tf.data.AUTOTUNE)

    columns = reader.training_columns(
        slices, seed, start_step, shuffle_buffer_size, excluded, mixture
    )
    batches = apply_on_services(options.services, columns, decode_columns).map(
        _make_bad_image_check(bad, reader)
    )
    return options.apply_to(options.add_prefetch(batches))


def eval_images(
    dataset: ImageDataset,
    *,
    shape: Shape,
    resize: bool,
    global_batch_size: int,
    bad: BadImages,
    drop_remainder: bool = False,
    preprocessing: Preprocessing = Preprocessing(),
    num_classes: int | None = None,
    input_context: tf.distribute.InputContext | None = None,
    options: PipelineOptions = PipelineOptions(),
    cache: bool = False,
) -> tf.data.Dataset:
    """Returns the dataset of one worker's evaluation batches: each example once, in order.

    Batches and arguments are as in `train_images`. `weight` is also 0 for the rows that pad the
    last batch. If `cache` is True, the batches stay in memory after the first pass. Raises
    `DataError` if the batch is not divisible by the number of replicas, or if there is no batch.
    """
    slices = replica_slices(global_batch_size, input_context)
    reader = make_reader(dataset)
    _check_services(reader, options)
    steps = count_eval_steps(dataset.name, dataset.size, global_batch_size, drop_remainder)
    decode = _make_decoder(
        reader, shape, resize, slices.batch_size, num_classes, bad, 0, preprocessing
    )
    columns = reader.evaluation_columns(slices, steps)
    batches = apply_on_services(options.services, columns, decode).map(
        _make_bad_image_check(bad, reader)
    )
    if cache:
        batches = batches.cache()
    return options.apply_to(options.add_prefetch(batches), slices.elements(steps))


def _check_services(reader: ImageReader[ImageDataset], options: PipelineOptions) -> None:
    if options.services and reader.needs_python:
        raise DataError(
            f"{reader.dataset.name}: a tf.data service cannot read images {reader.dataset.stored}, "
            "which need Python; remove the service, or use TFRecord files",
            field="enable_tf_data_service",
            code="not-supported",
        )


def _make_decoder(
    reader: ImageReader[ImageDataset],
    shape: Shape,
    resize: bool,
    batch_size: int,
    num_classes: int | None,
    bad: BadImages,
    seed: int,
    preprocessing: Preprocessing,
) -> Callable[[tf.data.Dataset], tf.data.Dataset]:
    """Returns the stage that looks up and decodes the images of batches of columns."""

    def make(raw: tf.Tensor, number: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
        data = reader.read_raw(raw)
        if resize:
            return augment(data, number, epoch, shape=shape, seed=seed, preprocessing=preprocessing)
        return tf.ensure_shape(decode_window(data, shape[2]), shape)

    def look_up(columns: Columns) -> Columns:
        return reader.look_up(columns, num_classes)

    def decode(columns: tf.data.Dataset) -> tf.data.Dataset:
        # Images that need nothing but decoding are decoded by whole batches.
        if reader.decodes_batches and not (resize or bad.limit):
            return columns.map(
                lambda batch: decode_at_once(reader, look_up(batch), shape),
                num_parallel_calls=tf.data.AUTOTUNE,
            )
        raw = columns.map(look_up, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        return decode_batches(raw, make, shape, batch_size)

    return decode


def _make_bad_image_check(
    bad: BadImages, reader: ImageReader[ImageDataset]
) -> Callable[[Columns], Columns]:
    """Returns the function that counts bad images.

    It is a separate last stage, because tf.data services do not have the count.
    """

    def check_batch(batch: Columns) -> Columns:
        image = batch["image"]
        weight = tf.cast(batch["good"], tf.float32)
        if "weight" in batch:
            weight *= batch["weight"]
        zero = bad.check(batch["good"], batch["id"], reader.names)
        # A slice of all images, which costs nothing but depends on the zero. If only the shape or
        # the weights depended on it, TensorFlow could optimize the check away.
        checked = tf.slice(image, [zero, 0, 0, 0], [-1, -1, -1, -1])
        return {
            "image": tf.ensure_shape(checked, image.shape),
            "label": batch["label"],
            "weight": weight,
        }

    return check_batch
