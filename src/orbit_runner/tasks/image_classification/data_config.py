"""Settings of an image dataset."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from orbit_runner.config.schema.base import Config, OneOf, field
from orbit_runner.config.schema.data import DataConfig

_METHODS = (
    "bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic",
)  # fmt: skip
_POLICIES = ("v0", "test", "simple", "reduced_cifar10", "svhn", "reduced_imagenet")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandAugment(Config):
    """RandAugment (Cubuk et al. 2020), with Model Garden's fields."""

    num_layers: int = field(2, ge=1, help="operations on an image, one after the other")
    magnitude: float = field(10, ge=0.0, le=10.0, help="how strong each one is")
    cutout_const: float = field(40, ge=0.0, help="factor of the size that is cut out")
    translate_const: float = field(10, ge=0.0, help="factor of how far images are moved")
    magnitude_std: float = field(
        0.0, help="spread of `magnitude`", unsupported="Model Garden's own operations fail with it"
    )
    prob_to_apply: float | None = field(
        None, ge=0.0, le=1.0, help="chance of each operation; always where unset"
    )
    exclude_ops: list[str] = field((), help="operations that are left out, such as Cutout")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AutoAugment(Config):
    """AutoAugment (Cubuk et al. 2019), with Model Garden's fields."""

    augmentation_name: str = field("v0", allowed=_POLICIES, help="the policy")
    cutout_const: float = field(100, ge=0.0, help="factor of the size that is cut out")
    translate_const: float = field(250, ge=0.0, help="factor of how far images are moved")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Augmentation(OneOf):
    """A policy of operations on training images, with Model Garden's fields."""

    required = True
    randaug: RandAugment = field(factory=RandAugment, help="random operations")
    autoaug: AutoAugment = field(factory=AutoAugment, help="learned pairs of operations")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomErasing(Config):
    """Random rectangles of noise (Zhong et al. 2020), with Model Garden's fields."""

    probability: float = field(0.25, ge=0.0, le=1.0, help="chance of an image")
    min_area: float = field(0.02, gt=0.0, le=1.0, help="smallest share of the image")
    max_area: float = field(1 / 3, gt=0.0, le=1.0, help="largest share of the image")
    min_aspect: float = field(0.3, gt=0.0, le=1.0, help="smallest aspect, and 1/largest")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MixupAndCutmix(Config):
    """Mixes images of a batch with their neighbors, with Model Garden's fields."""

    mixup_alpha: float = field(0.8, ge=0.0, help="of Beta(α, α), the share; 0 for none")
    cutmix_alpha: float = field(1.0, ge=0.0, help="of Beta(α, α), the area; 0 for none")
    prob: float = field(1.0, ge=0.0, le=1.0, help="chance of an image to be mixed")
    switch_prob: float = field(0.5, ge=0.0, le=1.0, help="chance of cutmix, where both are on")
    label_smoothing: float = field(
        0.1, ge=0.0, le=1.0, help="share of the labels spread over all classes"
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields an error if both mixup and CutMix are off."""
        if not self.mixup_alpha and not self.cutmix_alpha:
            yield "mixup_alpha", "got 0, as in cutmix_alpha\nallowed: above 0 in one of them"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageDataConfig(DataConfig):
    """An image dataset and its pipeline, with the fields of Model Garden's classification."""

    augment: str = field(
        "none",
        allowed=("none", "crop", "crop_flip", "inception"),
        help="change of the training images; inception: a part of any size, flipped or not",
    )
    tfds_name: str = field("", help="`source: tfds`: name, name/config or name:version")
    tfds_split: str = field("", help="such as train[:90%]; by is_training where unset")
    tfds_data_dir: str = field("", help="folder of TFDS; ~/tensorflow_datasets where unset")
    image_field_key: str = field("image/encoded", help="`source: tfrecord`: the image's feature")
    label_field_key: str = field(
        "image/class/label", help="`source: tfrecord`: the label's feature"
    )
    label_offset: int = field(
        0, help="number of the first class in the files, subtracted; 1 in Model Garden's ImageNet"
    )
    max_bad_images: int = field(
        0, ge=0, help="images that may fail to decode; each is named and has no weight"
    )
    aug_rand_hflip: bool = field(True, help="`augment: inception`: flip half of the images")
    crop_area_range: list[float] = field(
        (0.08, 1.0), gt=0.0, le=1.0, help="`augment: inception`: area of the part"
    )
    color_jitter: float = field(
        0.0, ge=0.0, le=1.0, help="strength of brightness, contrast and saturation"
    )
    aug_type: Augmentation | None = field(None, help="a policy of operations")
    random_erasing: RandomErasing | None = field(None, help="rectangles of noise")
    mixup_and_cutmix: MixupAndCutmix | None = field(None, help="mixtures of two images")
    center_crop_fraction: float | None = field(
        0.875, gt=0.0, le=1.0,
        help="the middle that evaluation sees, by the shorter side; null for the whole image",
    )  # fmt: skip
    tf_resize_method: str = field("bilinear", allowed=_METHODS, help="how images are resized")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields settings that contradict each other or have no effect."""
        yield from super().problems()
        yield from self._source_problems()
        if len(self.crop_area_range) != 2 or self.crop_area_range[0] > self.crop_area_range[1]:
            got = list(self.crop_area_range)
            yield "crop_area_range", f"got {got}, expected the smallest and the largest share"
        if self.is_training is False:
            for name in varying(self):
                yield name, "varies training images; leave it out with is_training: false"

    def _source_problems(self) -> Iterator[tuple[str, str]]:
        if self.source == "tfds" and not self.tfds_name:
            yield "tfds_name", "is not set; such as imagenet2012"
        if self.source == "tfds":
            for name in ("data_dir", "input_path", "split"):
                if getattr(self, name):
                    yield name, f"is not read by `source: tfds`; set tfds_{_TFDS[name]}"
        if self.source == "synthetic":
            return  # It may replace the source of any experiment, whose settings are then allowed.
        for name, sources in _READ_BY.items():
            if self.source not in sources and getattr(self, name) != _default(name):
                yield (
                    name,
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


def _default(name: str) -> object:
    return ImageDataConfig.__dataclass_fields__[name].default


def varying(config: ImageDataConfig) -> list[str]:
    """Returns the enabled settings that augment images one by one or in pairs."""
    fields = ("color_jitter", "aug_type", "random_erasing", "mixup_and_cutmix")
    return [name for name in fields if getattr(config, name)]


def training_images() -> ImageDataConfig:
    """Returns the defaults of `train_data`."""
    return ImageDataConfig(is_training=True)


def validation_images() -> ImageDataConfig:
    """Returns the defaults of `validation_data`, which evaluates every example."""
    return ImageDataConfig(is_training=False, drop_remainder=False)
