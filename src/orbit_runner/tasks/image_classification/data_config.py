"""Settings of one set of images."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from orbit_runner.config.schema.base import Config, OneOf, setting
from orbit_runner.config.schema.data import DataConfig

_METHODS = (
    "bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic",
)  # fmt: skip
_POLICIES = ("v0", "test", "simple", "reduced_cifar10", "svhn", "reduced_imagenet")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandAugment(Config):
    """Cubuk et al. 2020; fields of Model Garden."""

    num_layers: int = setting(2, minimum=1, help="operations on an image, one after the other")
    magnitude: float = setting(10, minimum=0.0, maximum=10.0, help="how strong each one is")
    cutout_const: float = setting(40, minimum=0.0, help="factor of the size that is cut out")
    translate_const: float = setting(10, minimum=0.0, help="factor of how far images are moved")
    magnitude_std: float = setting(
        0.0, help="spread of `magnitude`", refused="Model Garden's own operations fail with it"
    )
    prob_to_apply: float | None = setting(
        None, minimum=0.0, maximum=1.0, help="chance of each operation; always where unset"
    )
    exclude_ops: list[str] = setting((), help="operations that are left out, such as Cutout")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AutoAugment(Config):
    """Cubuk et al. 2019; fields of Model Garden."""

    augmentation_name: str = setting("v0", allowed=_POLICIES, help="the policy")
    cutout_const: float = setting(100, minimum=0.0, help="factor of the size that is cut out")
    translate_const: float = setting(250, minimum=0.0, help="factor of how far images are moved")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Augmentation(OneOf):
    """A policy of operations on training images; fields of Model Garden."""

    required = True
    randaug: RandAugment = setting(factory=RandAugment, help="random operations")
    autoaug: AutoAugment = setting(factory=AutoAugment, help="learned pairs of operations")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomErasing(Config):
    """A rectangle of noise (Zhong et al. 2020); fields of Model Garden."""

    probability: float = setting(0.25, minimum=0.0, maximum=1.0, help="chance of an image")
    min_area: float = setting(0.02, above=0.0, maximum=1.0, help="smallest share of the image")
    max_area: float = setting(1 / 3, above=0.0, maximum=1.0, help="largest share of the image")
    min_aspect: float = setting(0.3, above=0.0, maximum=1.0, help="smallest aspect, and 1/largest")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MixupAndCutmix(Config):
    """Mixtures of neighbours in a batch; fields of Model Garden."""

    mixup_alpha: float = setting(0.8, minimum=0.0, help="of Beta(α, α), the share; 0 for none")
    cutmix_alpha: float = setting(1.0, minimum=0.0, help="of Beta(α, α), the area; 0 for none")
    prob: float = setting(1.0, minimum=0.0, maximum=1.0, help="chance of an image to be mixed")
    switch_prob: float = setting(
        0.5, minimum=0.0, maximum=1.0, help="chance of cutmix, where both are on"
    )
    label_smoothing: float = setting(
        0.1, minimum=0.0, maximum=1.0, help="share of the labels spread over all classes"
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields a mixture of nothing."""
        if not self.mixup_alpha and not self.cutmix_alpha:
            yield "mixup_alpha", "got 0, as in cutmix_alpha\nallowed: above 0 in one of them"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageDataConfig(DataConfig):
    """One set of images and how they are fed; fields of Model Garden's image classification."""

    augment: str = setting(
        "none",
        allowed=("none", "crop", "crop_flip", "inception"),
        help="change of the training images; inception: a part of any size, flipped or not",
    )
    tfds_name: str = setting("", help="`source: tfds`: name, name/config or name:version")
    tfds_split: str = setting("", help="such as train[:90%]; by is_training where unset")
    tfds_data_dir: str = setting("", help="folder of TFDS; ~/tensorflow_datasets where unset")
    image_field_key: str = setting("image/encoded", help="`source: tfrecord`: the image's feature")
    label_field_key: str = setting(
        "image/class/label", help="`source: tfrecord`: the label's feature"
    )
    label_offset: int = setting(
        0, help="number of the first class in the files, subtracted; 1 in Model Garden's ImageNet"
    )
    max_bad_images: int = setting(
        0, minimum=0, help="images that may fail to decode; each is named and has no weight"
    )
    aug_rand_hflip: bool = setting(True, help="`augment: inception`: flip half of the images")
    crop_area_range: list[float] = setting(
        (0.08, 1.0), above=0.0, maximum=1.0, help="`augment: inception`: area of the part"
    )
    color_jitter: float = setting(
        0.0, minimum=0.0, maximum=1.0, help="strength of brightness, contrast and saturation"
    )
    aug_type: Augmentation | None = setting(None, help="a policy of operations")
    random_erasing: RandomErasing | None = setting(None, help="rectangles of noise")
    mixup_and_cutmix: MixupAndCutmix | None = setting(None, help="mixtures of two images")
    center_crop_fraction: float | None = setting(
        0.875, above=0.0, maximum=1.0,
        help="the middle that evaluation sees, by the shorter side; null for the whole image",
    )  # fmt: skip
    tf_resize_method: str = setting("bilinear", allowed=_METHODS, help="how images are resized")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields settings that contradict each other, or that have no effect."""
        yield from super().problems()
        yield from self._source_problems()
        if len(self.crop_area_range) != 2 or self.crop_area_range[0] > self.crop_area_range[1]:
            got = list(self.crop_area_range)
            yield "crop_area_range", f"got {got}, expected the smallest and the largest share"
        if self.is_training is False:
            for field in varying(self):
                yield field, "varies training images; leave it out with is_training: false"

    def _source_problems(self) -> Iterator[tuple[str, str]]:
        if self.source == "tfds" and not self.tfds_name:
            yield "tfds_name", "is not set; such as imagenet2012"
        if self.source == "tfds":
            for field in ("data_dir", "input_path", "split"):
                if getattr(self, field):
                    yield field, f"is not read by `source: tfds`; set tfds_{_TFDS[field]}"
        if self.source == "synthetic":
            return  # Laid over any experiment, and looks at no file.
        for field, sources in _READ_BY.items():
            if self.source not in sources and getattr(self, field) != _default(field):
                yield (
                    field,
                    f"is read by source {' and '.join(sources)} alone, got source {self.source!r}",
                )


_TFDS = {"data_dir": "data_dir", "input_path": "name", "split": "split"}
_READ_BY = {
    "tfds_name": ("tfds",),
    "tfds_split": ("tfds",),
    "tfds_data_dir": ("tfds",),
    "image_field_key": ("tfrecord",),
    "label_field_key": ("tfrecord",),
    "label_offset": ("tfrecord",),
    "max_bad_images": ("tfrecord", "image_folder", "tfds"),
}


def _default(field: str) -> object:
    return ImageDataConfig.__dataclass_fields__[field].default


def varying(config: ImageDataConfig) -> list[str]:
    """Returns the settings that vary images one by one or in pairs, as far as they are on.

    Args:
        config: The section.
    """
    fields = ("color_jitter", "aug_type", "random_erasing", "mixup_and_cutmix")
    return [field for field in fields if getattr(config, field)]


def training_images() -> ImageDataConfig:
    """Returns the defaults of `train_data`."""
    return ImageDataConfig(is_training=True)


def validation_images() -> ImageDataConfig:
    """Returns the defaults of `validation_data`, which counts every example."""
    return ImageDataConfig(is_training=False, drop_remainder=False)
