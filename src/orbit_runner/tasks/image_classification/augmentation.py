"""Converts the settings of a data section to image augmentations."""

from __future__ import annotations

from orbit_runner.data.images.train_image import (
    Erasing,
    Policy,
    Preprocessing,
    auto_augment,
    rand_augment,
)
from orbit_runner.tasks.image_classification.data_config import ImageDataConfig


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
