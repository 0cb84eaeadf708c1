"""Pipelines of images of any size, in which a batch is a function of (seed, step)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from orbit_runner.data.augment import CropFlip, crop_flip
from orbit_runner.data.images.batch_decode import MakeImage, decode_batches
from orbit_runner.data.images.decode_errors import BadImages
from orbit_runner.data.images.example_columns import (
    ImageSource,
    LookUp,
    evaluation_columns,
    training_columns,
)
from orbit_runner.data.images.files import FileSource
from orbit_runner.data.images.mixing import Mixer, Mixing
from orbit_runner.data.images.train_image import Variation, augment
from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.sampling.sharding import count_eval_steps, replica_slices
from orbit_runner.data.service import apply_on_services
from orbit_runner.errors import DataError

Shape = tuple[int, int, int]


def train_images(
    source: ImageSource,
    *,
    shape: Shape,
    resize: bool,
    global_batch_size: int,
    seed: int,
    bad: BadImages,
    start_step: int | tf.Tensor = 0,
    shuffle_buffer_size: int = 1,
    variation: Variation = Variation(),  # noqa: B008
    augmentation: CropFlip | None = None,
    mixing: Mixing | None = None,
    num_classes: int | None = None,
    input_context: tf.distribute.InputContext | None = None,
    options: PipelineOptions = PipelineOptions(),  # noqa: B008
) -> tf.data.Dataset:
    """Makes the endless pipeline of one worker's training batches.

    Pixels, labels and their order depend on `seed` and the step alone: not on where training
    started, nor on the number of replicas.

    Args:
        source: The examples.
        shape: Height, width and channels of what the network takes.
        resize: Whether images are brought to that shape; they have to have it otherwise.
        global_batch_size: Examples of a step on all replicas.
        seed: Seed of the order and of all that is drawn.
        bad: Counts the images that do not decode.
        start_step: The step of the first batch; in a graph, an int64 scalar tensor as well.
        shuffle_buffer_size: 0 or 1: in stored order; of records as in `train_records`.
        variation: How images are varied where they are resized.
        augmentation: A crop of the padded image and a flip after that.
        mixing: How neighbours in a batch are mixed.
        num_classes: One more than the largest label, to be checked; None for any.
        input_context: Which slice of each batch to make; all of it if None.
        options: How tf.data runs it.

    Returns:
        Batches for one replica of `image` (uint8 [b, *shape]), `label` (int32 [b]; float32
        [b, num_classes] where mixed) and `weight` (float32 [b], 0 for images that did not decode).

    Raises:
        DataError: The batch does not divide by the replicas, or into pairs to be mixed.
    """
    slices = replica_slices(global_batch_size, input_context)
    if mixing is not None and slices.batch_size % 2:
        raise DataError(
            f"got {slices.batch_size} examples a replica, expected an even number: "
            "mixup_and_cutmix mixes pairs",
            field="global_batch_size",
        )
    look_up, make = LookUp(source, num_classes), _maker(source, shape, resize, seed, variation)
    mixer = None if mixing is None else Mixer(mixing, seed)

    def finished(batch: dict[str, Any]) -> dict[str, Any]:
        key = batch["id"], batch["epoch"]
        if augmentation is not None:
            batch["image"] = crop_flip(batch["image"], augmentation, seed, *key)
        if mixer is not None:
            mixed = mixer(batch["image"], batch["label"], batch["good"], *key)
            batch["image"], batch["label"] = mixed
        return batch

    def costly(columns: tf.data.Dataset) -> tf.data.Dataset:
        found = columns.map(look_up, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        made = decode_batches(found, make, shape, slices.batch_size)
        return made.map(finished, num_parallel_calls=tf.data.AUTOTUNE)

    columns = training_columns(source, slices, seed, start_step, shuffle_buffer_size)
    batches = apply_on_services(options.services, columns, costly).map(_checker(bad, look_up))
    # A finite set would make a distributed iterator ask all replicas every step whether it ended.
    endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
    return options.ahead(batches.apply(endless)).with_options(options.tf_options())


def eval_images(
    source: ImageSource,
    *,
    shape: Shape,
    resize: bool,
    global_batch_size: int,
    bad: BadImages,
    drop_remainder: bool = False,
    variation: Variation = Variation(),  # noqa: B008
    num_classes: int | None = None,
    input_context: tf.distribute.InputContext | None = None,
    options: PipelineOptions = PipelineOptions(),  # noqa: B008
    cache: bool = False,
) -> tf.data.Dataset:
    """Makes the pipeline of one worker's evaluation batches: each example once, in order.

    Args:
        source: The examples.
        shape: Height, width and channels of what the network takes.
        resize: Whether images are brought to that shape; they have to have it otherwise.
        global_batch_size: Examples of a step on all replicas.
        bad: Counts the images that do not decode.
        drop_remainder: Whether a last, part-filled batch is left out.
        variation: Which middle is cut out, and how it is resized.
        num_classes: One more than the largest label, to be checked; None for any.
        input_context: Which slice of each batch to make; all of it if None.
        options: How tf.data runs it.
        cache: Whether batches stay in memory after the first pass.

    Returns:
        Batches for one replica as in training; weights are 0 for the rows that fill up the last
        batch too.

    Raises:
        DataError: The batch does not divide by the replicas, or no step is left.
    """
    slices = replica_slices(global_batch_size, input_context)
    steps = count_eval_steps(source.name, source.size, global_batch_size, drop_remainder)
    look_up, make = LookUp(source, num_classes), _maker(source, shape, resize, 0, variation)

    def costly(columns: tf.data.Dataset) -> tf.data.Dataset:
        found = columns.map(look_up, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        return decode_batches(found, make, shape, slices.batch_size)

    columns = evaluation_columns(source, slices, steps)
    batches = apply_on_services(options.services, columns, costly).map(_checker(bad, look_up))
    if cache:
        batches = batches.cache()
    count = tf.data.experimental.assert_cardinality(slices.elements(steps))
    return options.ahead(batches).apply(count).with_options(options.tf_options())


def _maker(
    source: ImageSource, shape: Shape, resize: bool, seed: int, variation: Variation
) -> MakeImage:
    def make(raw: tf.Tensor, number: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
        data = tf.io.read_file(raw) if isinstance(source, FileSource) else raw
        if resize:
            return augment(data, number, epoch, shape=shape, seed=seed, variation=variation)
        image = tf.io.decode_image(data, channels=shape[2], expand_animations=False)
        return tf.ensure_shape(image, shape)

    return make


def _checker(bad: BadImages, look_up: LookUp) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Returns what counts bad images. By itself and last: services have no part in the count."""

    def checked(batch: dict[str, Any]) -> dict[str, Any]:
        image, weight = batch["image"], tf.cast(batch["good"], tf.float32)
        if "weight" in batch:
            weight *= batch["weight"]
        zero = bad.checked(batch["good"], batch["id"], look_up.names)
        # All of the images, which costs nothing, but nobody can tell without the zero. As a part
        # of the shape, or with weights alone, TensorFlow would find out that it can do without.
        whole = tf.slice(image, [zero, 0, 0, 0], [-1, -1, -1, -1])
        return {
            "image": tf.ensure_shape(whole, image.shape),
            "label": batch["label"],
            "weight": weight,
        }

    return checked
