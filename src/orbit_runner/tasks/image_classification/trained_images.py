"""What a run found out about its training images: size, statistics and classes. No TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from orbit_runner.data.images.dataset import ImageDataset
from orbit_runner.errors import DataError, SettingError, shorten
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.image_classification.config import ImageClassificationConfig
from orbit_runner.tasks.image_classification.sources import (
    pixel_statistics,
    section_source,
    setting_of_error,
)

# The asset of a run.
IMAGES_FILE = "images.json"


@dataclasses.dataclass(frozen=True)
class TrainedImages:
    """The images that a network is trained on.

    Attributes:
        shape: Height, width and channels of the images that the network gets.
        dtype: The type of their pixels.
        mean: The mean that the network subtracts, of each channel or of all; None for 0.
        std: The standard deviation that it divides by, likewise; None for 1.
        num_classes: The number of classes.
        labels: The names of the classes in their order; None if the dataset has none.
        is_in_memory: Whether the dataset is in memory, so that images are not cropped.
    """

    shape: tuple[int, int, int]
    dtype: str
    mean: Sequence[float] | None
    std: Sequence[float] | None
    num_classes: int
    labels: Sequence[str] | None
    is_in_memory: bool

    @property
    def class_names(self) -> list[str]:
        """The names of the classes, or their numbers."""
        return [str(name) for name in self.labels or range(self.num_classes)]

    def check(self, source: ImageDataset, section: str, input_size: Sequence[int] | None) -> None:
        """Raises `SettingError` if the images of a section do not fit those of the run."""
        problem = ""
        if None not in (source.labels, self.labels) and source.labels != self.labels:
            problem = (
                f"got the classes {_format_names(source.labels)}, but the run was trained on "
                f"{_format_names(self.labels)}"
            )
        shape, dtype = source.with_channels(self.shape[2]).spec(input_size)
        if (shape, dtype) != (self.shape, self.dtype):
            problem = (
                f"got images {list(shape)} of {dtype}, but the run was trained on "
                f"{list(self.shape)} of {self.dtype}"
            )
        if problem:
            raise SettingError(
                f"task.{section}.source",
                f"{problem}\nuse data like those of the training, or another --model_dir",
                code="data-mismatch",
            )


def trained_images(config: ImageClassificationConfig, assets: Assets) -> TrainedImages:
    """Returns what a run found out about its training images; of a new run, finds it out.

    Raises `SettingError` if the dataset cannot be read.
    """
    content = assets.get_json(IMAGES_FILE, lambda: dataclasses.asdict(_describe(config)))
    try:
        return _decode(content)
    except (KeyError, TypeError, ValueError) as error:
        raise assets.damaged(IMAGES_FILE, error) from None


def _describe(config: ImageClassificationConfig) -> TrainedImages:
    model = config.model
    try:
        source = section_source(config, config.train_data)
        shape, dtype = source.spec(model.input_size)
    except DataError as error:
        setting = setting_of_error("train_data", error)
        raise SettingError(f"task.{setting}", str(error), code=error.code) from error
    classes = model.num_classes or source.known_classes()
    if classes is None:
        raise SettingError("task.model.num_classes", "is not set", code="not-set")
    mean, std = pixel_statistics(source, model.input_size)
    return TrainedImages(
        shape=shape,
        dtype=dtype,
        mean=mean,
        std=std,
        num_classes=classes,
        labels=source.labels,
        is_in_memory=source.is_in_memory,
    )


def _decode(content: Any) -> TrainedImages:
    height, width, channels = content["shape"]
    lists = ("mean", "std", "labels")
    values = {
        name: tuple(value) if name in lists and value is not None else value
        for name, value in content.items()
    }
    return TrainedImages(**values | {"shape": (height, width, channels)})


def _format_names(names: Sequence[str] | None) -> str:
    return shorten(", ".join(map(str, names or ())), 200)
