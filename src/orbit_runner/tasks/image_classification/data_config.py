"""Settings of an image dataset."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from orbit_runner.config.errors import Problem, conflict, no_effect, wrong_type
from orbit_runner.config.schema.base import Config, OneOf, Rule, config_class, field
from orbit_runner.config.schema.data import source_field
from orbit_runner.registry import SOURCES
from orbit_runner.tasks.shared_config import StoredDataConfig, TableSplitConfig

if TYPE_CHECKING:
    from orbit_runner.data.augment import CropFlip
    from orbit_runner.data.images.mixing import Mixing
    from orbit_runner.data.images.train_image import Policy, Preprocessing
    from orbit_runner.data.tables.split import RowSplit

_RESIZE_METHODS = (
    "bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic",
)  # fmt: skip
_POLICIES = ("v0", "test", "simple", "reduced_cifar10", "svhn", "reduced_imagenet")


@config_class
class RandAugment(Config):
    """RandAugment (Cubuk et al. 2020), with Model Garden's fields."""

    num_layers: int = field(2, ge=1, help="number of operations applied to each image in sequence")
    magnitude: float = field(10, ge=0.0, le=10.0, help="strength of the operations")
    cutout_const: float = field(
        40,
        ge=0.0,
        help="half the side of the square that Cutout removes at magnitude 10, in pixels",
    )
    translate_const: float = field(
        10, ge=0.0, help="distance of translations at magnitude 10, in pixels"
    )
    magnitude_std: float = field(
        0.0,
        help="standard deviation of the magnitude",
        unsupported="Model Garden's own operations fail with it",
    )
    prob_to_apply: float | None = field(
        None, ge=0.0, le=1.0, help="probability of applying each operation; null: always apply it"
    )
    exclude_ops: list[str] = field((), help="operations to exclude, such as Cutout")


@config_class
class AutoAugment(Config):
    """AutoAugment (Cubuk et al. 2019), with Model Garden's fields."""

    augmentation_name: str = field("v0", allowed=_POLICIES, help="name of the policy")
    cutout_const: float = field(
        100,
        ge=0.0,
        help="half the side of the square that Cutout removes at magnitude 10, in pixels",
    )
    translate_const: float = field(
        250, ge=0.0, help="distance of translations at magnitude 10, in pixels"
    )


@config_class
class Augmentation(OneOf):
    """A policy of operations on training images, with Model Garden's fields."""

    required = True
    randaug: RandAugment = field(factory=RandAugment, help="RandAugment: random operations")
    autoaug: AutoAugment = field(
        factory=AutoAugment, help="AutoAugment: learned pairs of operations"
    )


@config_class
class RandomErasing(Config):
    """Random rectangles of noise (Zhong et al. 2020), with Model Garden's fields."""

    probability: float = field(
        0.25, ge=0.0, le=1.0, help="probability of erasing a rectangle of an image"
    )
    min_area: float = field(
        0.02, gt=0.0, le=1.0, help="minimum area of the rectangle as a fraction of the image"
    )
    max_area: float = field(
        1 / 3, gt=0.0, le=1.0, help="maximum area of the rectangle as a fraction of the image"
    )
    min_aspect: float = field(
        0.3,
        gt=0.0,
        le=1.0,
        help="minimum aspect ratio (height / width); the maximum is its inverse",
    )


@config_class
class MixupAndCutmix(Config):
    """Mixes images of a batch with their neighbors, with Model Garden's fields."""

    _rules = (
        Rule("mixup_alpha", lambda mix: not mix.mixup_alpha and not mix.cutmix_alpha,
             "got 0, and cutmix_alpha is also 0\nat least one must be above 0", "conflict"),
    )  # fmt: skip
    mixup_alpha: float = field(
        0.8, ge=0.0, help="α of the Beta(α, α) distribution of the mixing ratio; 0: no mixup"
    )
    cutmix_alpha: float = field(
        1.0, ge=0.0, help="α of the Beta(α, α) distribution of the area that is kept; 0: no CutMix"
    )
    prob: float = field(1.0, ge=0.0, le=1.0, help="probability of mixing an image")
    switch_prob: float = field(
        0.5, ge=0.0, le=1.0, help="probability of CutMix instead of mixup, if both are enabled"
    )
    label_smoothing: float = field(
        0.1, ge=0.0, le=1.0, help="fraction of each label that is spread over all classes"
    )


@config_class
class ImageSplitConfig(TableSplitConfig):
    """How the images of both sections are split: by a column, or by a hash."""

    hash_of: list[str] = field(
        (),
        help="`fractions`: what keeps images in one part: columns of `source: image_csv` and "
        "`hugging_face`, such as the ID of a person, or `directory`, the directory of a file; by "
        "default the path of a file, the pixels of an array, or the number of a record",
    )
    stratified: bool = field(
        False,
        help="`fractions`: give each part its share of each class, by the rank of the hash in the "
        "class; then new images may move others",
    )

    def problems(self) -> Iterator[Problem]:
        """Yields settings that contradict each other or have no effect."""
        yield from super().problems()
        if self.stratified and (self.column or self.hash_of):
            other = "column" if self.column else "hash_of"
            yield conflict("stratified", f"cannot be combined with {other}, which may join classes")

    def row_split(self, hash_of: Sequence[str] = ()) -> RowSplit:
        """Returns the split; by default, it depends on the name of each image."""
        return dataclasses.replace(super().row_split(hash_of), is_stratified=self.stratified)


@config_class
class ImageDataConfig(StoredDataConfig):
    """An image dataset and its pipeline, with the fields of Model Garden's classification."""

    _rules = (
        Rule("augment", lambda data: data.is_training is False and data.augment != "none",
             "got {value!r} with is_training: false\nallowed: 'none'", "conflict"),
    )  # fmt: skip
    source: str = source_field(SOURCES)
    split: str = field(
        "",
        help="split of the dataset: train, test or all, by default depending on is_training; or a "
        "part that task.split defines, by default train or validation",
    )
    augment: str = field(
        "none",
        allowed=("none", "crop", "crop_flip", "inception"),
        help="augmentation of training images; inception: random crop of varying size "
        "and aspect ratio",
    )
    augment_padding: int = field(
        4, ge=0, le=1024, help="pixels of zero padding on each side of an image before cropping"
    )
    labels_file: str = field(
        "",
        path="file",
        help="`source: image_csv`: CSV file with paths and labels, relative to data_dir",
    )
    classes_file: str = field(
        "",
        path="file",
        help="`source: image_csv`: CSV file whose labels are the classes, relative to data_dir; by "
        "default labels_file",
    )
    path_column: str = field(
        "",
        help="`source: image_csv`: column with the path of an image; by default the first",
    )
    label_column: str = field(
        "",
        help="`source: image_csv` and `hugging_face`: column with the class; by default the "
        "second, or the only ClassLabel",
    )
    image_column: str = field(
        "",
        help="`source: hugging_face`: column with JPEG or PNG files; by default the only Image",
    )
    image_field_key: str = field(
        "image/encoded", help="`source: tfrecord` and `array_record`: name of the image feature"
    )
    label_field_key: str = field(
        "image/class/label",
        help="`source: tfrecord` and `array_record`: name of the label feature",
    )
    label_offset: int = field(
        0,
        help="number of the first class in the files, subtracted from labels; Model "
        "Garden's ImageNet: 1",
    )
    max_bad_images: int = field(
        0,
        ge=0,
        help="maximum number of images that may fail to decode; each is reported and has weight 0",
    )
    aug_rand_hflip: bool = field(
        True, help="`augment: inception`: flip half of the images horizontally"
    )
    crop_area_range: list[float] = field(
        (0.08, 1.0),
        gt=0.0,
        le=1.0,
        help="`augment: inception`: minimum and maximum area of the crop as fractions of the image",
    )
    color_jitter: float = field(
        0.0,
        ge=0.0,
        le=1.0,
        help="strength of random brightness, contrast and saturation changes; 0: none",
    )
    aug_type: Augmentation | None = field(None, help="augmentation policy; null: none")
    random_erasing: RandomErasing | None = field(
        None, help="random erasing: rectangles filled with noise; null: none"
    )
    mixup_and_cutmix: MixupAndCutmix | None = field(
        None, help="mixup and CutMix: mixtures of two images; null: none"
    )
    center_crop_fraction: float | None = field(
        0.875, gt=0.0, le=1.0,
        help="side of the center crop as a fraction of the shorter side; null: the whole image",
    )  # fmt: skip
    tf_resize_method: str = field(
        "bilinear", allowed=_RESIZE_METHODS, help="interpolation method for resizing images"
    )

    def problems(self) -> Iterator[Problem]:
        """Yields settings that contradict each other or have no effect."""
        yield from super().problems()
        if len(self.crop_area_range) != 2 or self.crop_area_range[0] > self.crop_area_range[1]:
            got = f"got {list(self.crop_area_range)}"
            yield wrong_type("crop_area_range", f"{got}, expected the minimum and maximum fraction")
        if self.is_training is False:
            for name in enabled_augmentations(self):
                message = "augments training images; remove it, because is_training is false"
                yield no_effect(name, message)


def enabled_augmentations(config: ImageDataConfig) -> list[str]:
    """Returns the enabled settings that augment images one by one or in pairs."""
    fields = ("color_jitter", "aug_type", "random_erasing", "mixup_and_cutmix")
    return [name for name in fields if getattr(config, name)]


def has_image_augmentation(config: ImageDataConfig) -> bool:
    """Returns whether images are augmented one by one."""
    return config.augment == "inception" or bool(
        set(enabled_augmentations(config)) - {"mixup_and_cutmix"}
    )


def make_crop_flip(config: ImageDataConfig) -> CropFlip | None:
    """Returns how whole batches are cropped and flipped; None if they are not."""
    if config.augment in ("none", "inception"):
        return None
    from orbit_runner.data.augment import CropFlip

    return CropFlip(padding=config.augment_padding, flip=config.augment == "crop_flip")


def make_mixing(config: ImageDataConfig, num_classes: int | None) -> Mixing | None:
    """Returns how the images of a batch are mixed; None if they are not."""
    if config.mixup_and_cutmix is None:
        return None
    from orbit_runner.data.images.mixing import Mixing

    assert num_classes is not None
    return Mixing(num_classes=num_classes, **config.mixup_and_cutmix.as_dict())


def make_preprocessing(config: ImageDataConfig, *, is_in_memory: bool) -> Preprocessing:
    """Returns how images are augmented and resized to the input size of the network.

    Without random crops, as in evaluation, this takes the center of each image. If the dataset is
    in memory, it takes the whole image.
    """
    from orbit_runner.data.images.train_image import Erasing, Preprocessing

    inception = config.augment == "inception"
    low, high = config.crop_area_range
    return Preprocessing(
        areas=(low, high) if inception else None,
        center_crop_fraction=None if is_in_memory else config.center_crop_fraction,
        method=config.tf_resize_method,
        flip=inception and config.aug_rand_hflip,
        jitter=config.color_jitter,
        policy=_policy(config),
        erasing=Erasing(**config.random_erasing.as_dict()) if config.random_erasing else None,
    )


def _policy(config: ImageDataConfig) -> Policy | None:
    if config.aug_type is None:
        return None
    from orbit_runner.data.images.train_image import auto_augment, rand_augment

    settings = config.aug_type.get().as_dict()
    if config.aug_type.type == "autoaug":
        return auto_augment(**settings)
    del settings["magnitude_std"]
    return rand_augment(**settings)
