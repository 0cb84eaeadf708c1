"""What a section's settings say about how images are varied."""

from __future__ import annotations

from orbit_runner.data.images.augment_policies import Policy, auto_augment, rand_augment
from orbit_runner.data.images.erasing import Erasing
from orbit_runner.data.images.train_image import Variation
from orbit_runner.data.source import ArraySource
from orbit_runner.tasks.image_classification.data_config import ImageDataConfig, varying
from orbit_runner.tasks.image_classification.sources import Source


def varies_images(params: ImageDataConfig) -> bool:
    """Tells whether images are varied one by one.

    Args:
        params: The section.
    """
    return params.augment == "inception" or bool(set(varying(params)) - {"mixup_and_cutmix"})


def variation(params: ImageDataConfig, source: Source) -> Variation:
    """Says how images are brought to the size of the network.

    Args:
        params: The section.
        source: Its data set: what lies in memory is taken whole where no part is drawn.

    Returns:
        The middle where nothing is to be drawn, as in evaluation.
    """
    whole = isinstance(source, ArraySource)
    inception = params.augment == "inception"
    low, high = params.crop_area_range
    return Variation(
        areas=(low, high) if inception else None,
        center_crop_fraction=None if whole else params.center_crop_fraction,
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
