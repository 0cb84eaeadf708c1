"""The batches of a section's images: from memory, or decoded by a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from orbit_runner.data.array_pipeline import eval_chunks, train_chunks
from orbit_runner.data.augment import CropFlip
from orbit_runner.data.chunks import Chunks
from orbit_runner.data.images.dataset import ImageDataset
from orbit_runner.data.images.decode_errors import BadImages
from orbit_runner.data.images.mixing import Mixing
from orbit_runner.data.images.pipeline import eval_images, train_images
from orbit_runner.data.images.train_image import (
    Erasing,
    Policy,
    Preprocessing,
    auto_augment,
    rand_augment,
)
from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.order.epochs import NO_EXAMPLES
from orbit_runner.tasks.base import section_of
from orbit_runner.tasks.image_classification.data_config import ImageDataConfig
from orbit_runner.tasks.image_classification.sources import (
    Size,
    image_mixture,
    is_ready,
)

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors


def train_inputs(
    source: ImageDataset,
    params: ImageDataConfig,
    input_context: tf.distribute.InputContext | None,
    start_step: int | tf.Tensor,
    num_classes: int | None,
    input_size: Size = None,
    bad: BadImages | None = None,
    excluded: np.ndarray = NO_EXAMPLES,
) -> tf.data.Dataset:
    """Returns one worker's endless training batches of `(image, label)`, for images to decode.

    They are `(image, label, weight)` if images may fail to decode, which `bad` counts. `source` are
    the images of the section `params`. `start_step` is the step of the first batch. `num_classes`
    is the largest label plus one, or None to accept all labels. `input_size` is height, width and
    channels that images are resized to, or None to keep their size. `excluded`, int64 [k], are the
    examples to leave out.
    """
    batches = train_images(
        source,
        **_decoding(source, params, input_size, bad),
        **_train_settings(source, params, num_classes, excluded),
        mixing=_make_mixing(params, num_classes),
        shuffle_buffer_size=params.shuffle_buffer_size,
        num_classes=num_classes,
        start_step=start_step,
        input_context=input_context,
        options=PipelineOptions.from_config(params),
    )
    return batches.map(_weighted_element if params.max_bad_images else _train_element)


def chunks(
    source: ImageDataset,
    params: ImageDataConfig,
    num_classes: int | None,
    input_size: Size,
    replicas: int,
    excluded: np.ndarray = NO_EXAMPLES,
) -> Chunks | None:
    """Returns the batches of a section by step; None for images to decode.

    They are those of `train_inputs` or `eval_inputs`. For the arguments, see there.
    """
    if not is_ready(source, params, input_size):
        return None
    if not params.is_training:
        return eval_chunks(
            source,
            global_batch_size=params.global_batch_size,
            replicas=replicas,
            drop_remainder=params.drop_remainder,
            element=_eval_element,
        )
    return train_chunks(
        source,
        replicas=replicas,
        shuffle=params.shuffle_buffer_size > 1,
        element=_train_element,
        **_train_settings(source, params, num_classes, excluded),
    )


def eval_inputs(
    source: ImageDataset,
    params: ImageDataConfig,
    input_context: tf.distribute.InputContext | None,
    num_classes: int | None,
    input_size: Size = None,
    bad: BadImages | None = None,
) -> tf.data.Dataset:
    """Returns one worker's evaluation batches of `(image, label, weight)`, each example once.

    For the arguments, see `train_inputs`.
    """
    batches = eval_images(
        source,
        **_decoding(source, params, input_size, bad),
        num_classes=num_classes,
        global_batch_size=params.global_batch_size,
        drop_remainder=params.drop_remainder,
        input_context=input_context,
        options=PipelineOptions.from_config(params),
        cache=params.cache,
    )
    return batches.map(_weighted_element)


def _decoding(
    source: ImageDataset, params: ImageDataConfig, input_size: Size, bad: BadImages | None
) -> dict[str, Any]:
    """Returns how the images of a section become those that the network gets."""
    return {
        "shape": source.spec(input_size)[0],
        "resize": input_size is not None,
        "bad": bad or BadImages(section_of(params), params.max_bad_images),
        "preprocessing": make_preprocessing(params, is_in_memory=source.is_in_memory),
    }


def _train_element(batch: dict[str, tf.Tensor]) -> Tensors:
    return batch["image"], batch["label"]


def _weighted_element(batch: dict[str, tf.Tensor]) -> Tensors:
    return batch["image"], batch["label"], batch["weight"]


def _eval_element(batch: dict[str, tf.Tensor], weight: tf.Tensor) -> Tensors:
    return batch["image"], batch["label"], weight


def _train_settings(
    source: ImageDataset, params: ImageDataConfig, num_classes: int | None, excluded: np.ndarray
) -> dict[str, Any]:
    return {
        "mixture": image_mixture(params, source, num_classes, excluded),
        "global_batch_size": params.global_batch_size,
        "seed": params.seed or 0,
        "augmentation": _make_crop_flip(params),
        "excluded": excluded,
    }


def _make_crop_flip(params: ImageDataConfig) -> CropFlip | None:
    if params.augment in ("none", "inception"):
        return None
    return CropFlip(padding=params.augment_padding, flip=params.augment == "crop_flip")


def _make_mixing(params: ImageDataConfig, num_classes: int | None) -> Mixing | None:
    config = params.mixup_and_cutmix
    if config is None:
        return None
    assert num_classes is not None
    return Mixing(num_classes=num_classes, **config.as_dict())


def make_preprocessing(params: ImageDataConfig, *, is_in_memory: bool) -> Preprocessing:
    """Returns how images are augmented and resized to the input size of the network.

    Without random crops, as in evaluation, this takes the center of each image. If the dataset is
    in memory, it takes the whole image.
    """
    inception = params.augment == "inception"
    low, high = params.crop_area_range
    return Preprocessing(
        areas=(low, high) if inception else None,
        center_crop_fraction=None if is_in_memory else params.center_crop_fraction,
        method=params.tf_resize_method,
        flip=inception and params.aug_rand_hflip,
        jitter=params.color_jitter,
        policy=_policy(params),
        erasing=Erasing(**params.random_erasing.as_dict()) if params.random_erasing else None,
    )


def _policy(params: ImageDataConfig) -> Policy | None:
    if params.aug_type is None:
        return None
    settings = params.aug_type.get().as_dict()
    if params.aug_type.type == "autoaug":
        return auto_augment(**settings)
    del settings["magnitude_std"]
    return rand_augment(**settings)
