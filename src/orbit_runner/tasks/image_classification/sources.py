"""Loads the dataset of a config section. Uses only NumPy, so that it can be checked early."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from orbit_runner.config.errors import Problem
from orbit_runner.config.schema.data import source_registry
from orbit_runner.data.dataset import arguments_of, class_difference
from orbit_runner.data.images import NATURAL_MEAN, NATURAL_STD
from orbit_runner.data.images.dataset import (
    ImageArrays,
    ImageDataset,
    Size,
    join_images,
    part_of_images,
)
from orbit_runner.data.images.headers import add_survey
from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.tables.dataset import usual_splits
from orbit_runner.data.tables.split import RowSplit
from orbit_runner.errors import DataError, SettingError, first_line, shorten
from orbit_runner.tasks.assets import Assets, other_data_error, with_tuples
from orbit_runner.tasks.image_classification.config import ImageClassificationConfig
from orbit_runner.tasks.image_classification.data_config import (
    ImageDataConfig,
    has_image_augmentation,
)
from orbit_runner.tasks.imbalance.classes import Classes, classes_of_labels
from orbit_runner.tasks.imbalance.config import setting_of_source

# The asset of a run.
IMAGES_FILE = "images.json"


@cache_source(maxsize=8)
def _load_cached(load: Callable[..., Any], **arguments: Any) -> ImageDataset:
    dataset: ImageDataset = load(**arguments)
    return dataset


def load_source(
    config: ImageDataConfig,
    input_size: Size = None,
    num_classes: int | None = None,
    split: RowSplit | None = None,
) -> ImageDataset:
    """Returns the dataset of one section, loaded once per process.

    Synthetic images have `input_size` (height, width, channels) and `num_classes`. `split` divides
    the images of each source into parts, of which the section names one. Raises `DataError` if the
    dataset is missing or invalid.
    """
    try:
        if config.mixture:
            parts = []
            for number, part in enumerate(config.sources):
                try:
                    parts.append(_load(part, input_size, num_classes, split))
                except DataError as error:
                    field = setting_of_source(number, error.field)
                    raise DataError(str(error), field=field, code=error.code) from error
            dataset = join_images(tuple(parts))
        else:
            dataset = _load(config, input_size, num_classes, split)
        # If images are resized, the config sets their channels, and they may have any size.
        return _survey(dataset) if input_size is None else dataset
    except MemoryError as error:
        raise DataError(
            f"{config.source}: does not fit in memory: {first_line(error)}",
            field="source",
            code="out-of-memory",
        ) from None


def section_source(config: ImageClassificationConfig, data: ImageDataConfig) -> ImageDataset:
    """Returns the dataset of a section of a config, as `load_source` does."""
    model = config.model
    return load_source(data, model.input_size, model.num_classes, config.row_split)


def _load(
    config: ImageDataConfig, input_size: Size, num_classes: int | None, split: RowSplit | None
) -> ImageDataset:
    if config.traits.is_generated:
        split = None
    is_split = split is not None
    by_default = "train" if config.is_training else "test"
    load = source_registry(config).get(config.source).load()
    arguments = arguments_of(
        load,
        config,
        # Parts of a dataset that `split` divides are those of its training split.
        split="train" if is_split else config.split or by_default,
        default_splits=usual_splits(config, is_split=is_split),
        split_columns=() if split is None else split.columns,
        any_size=input_size is not None,
        input_size=input_size and tuple(input_size),
        num_classes=num_classes,
        num_examples=config.synthetic.num_examples,
    )
    dataset = _load_cached(load, **arguments)
    return dataset if split is None else part_of_images(dataset, split, config.part)


@cache_source(maxsize=16)
def _survey(dataset: ImageDataset) -> ImageDataset:
    return add_survey(dataset)


def is_ready(
    dataset: ImageDataset, params: ImageDataConfig, input_size: Size
) -> TypeGuard[ImageArrays]:
    """Returns whether images are in memory in their final size and need at most a crop or flip."""
    if not dataset.is_in_memory:
        return False
    if params.traits.is_generated:
        return True
    has_input_size = dataset.spec(input_size)[0] == dataset.spec()[0]
    return has_input_size and not has_image_augmentation(params) and params.mixup_and_cutmix is None


def pixel_statistics(
    dataset: ImageDataset, input_size: Size = None
) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """Returns the mean and the standard deviation that the network normalizes pixels with.

    They are those of the dataset if known, or ImageNet's for color images that are resized. Each
    has a value per channel, or one for all channels; None means no normalization.
    """
    known = dataset.is_in_memory and dataset.mean is not None
    if input_size is not None and input_size[-1] == 3 and not known:
        return NATURAL_MEAN, NATURAL_STD
    return dataset.mean, dataset.std


def mismatch_problems(
    sources: Mapping[str, ImageDataset], num_classes: int | None, input_size: Size = None
) -> Iterator[Problem]:
    """Yields (field, message) for datasets that do not match each other or the network.

    `sources` are the datasets by section, training first. `num_classes` is the number of classes
    that the config sets, or None. `input_size` is the shape that images are resized to, or None.
    """
    for section, source in sources.items():
        classes = source.known_classes() if num_classes else None
        if num_classes and classes and classes > num_classes:
            message = f"got {num_classes}, expected at least {classes}, the classes of {section}"
            yield Problem("model.num_classes", message, code="data-mismatch")
            break
    channels = next(iter(sources.values())).spec(input_size)[0][2] if sources else 0
    specs = [
        (section, *source.with_channels(channels).spec(input_size))
        for section, source in sources.items()
    ]
    for section, shape, dtype in specs[1:]:
        first, *expected = specs[0]
        if [shape, dtype] != expected:
            message = (
                f"got images {list(shape)} of {dtype}, expected {list(expected[0])} of "
                f"{expected[1]} as in {first}"
            )
            yield Problem(f"{section}.source", message, code="data-mismatch")
    yield from label_problems(sources)


def size_problems(sources: Mapping[str, ImageDataset]) -> Iterator[Problem]:
    """Yields an error if images have different sizes, although they are not resized."""
    for section, source in sources.items():
        sizes = [] if source.survey is None else source.survey.sizes
        if len(sizes) > 1:
            small, large = (f"{h} × {w}" for h, w in (sizes[0], sizes[-1]))
            message = (
                f"is not set, but the images of {section} have from {small} to {large} pixels\n"
                "set it to height, width and channels to resize all images to"
            )
            yield Problem("model.input_size", message, code="data-mismatch")
            return


def label_problems(sources: Mapping[str, ImageDataset]) -> Iterator[Problem]:
    """Yields (field, message) for sections with other classes than the first."""
    named = [(section, s.labels) for section, s in sources.items() if s.labels is not None]
    for section, labels in named[1:]:
        first, expected = named[0]
        if labels != expected:
            message = class_difference(labels, expected, first)
            if sources[section].name == sources[first].name == "image_csv":
                message += f"\nset {section}.classes_file to the labels_file of {first}"
            yield Problem(f"{section}.source", message, code="unknown-class")


def training_classes(dataset: ImageDataset, num_classes: int | None = None) -> Classes:
    """Returns the class of each image.

    `num_classes` is the number of outputs of the model, if the config sets it.
    """
    return classes_of_labels(dataset.class_numbers(), dataset.labels, num_classes)


def classes_of(config: ImageClassificationConfig, dataset: ImageDataset) -> Classes:
    """Returns the class of each training image; none if only names are needed."""
    classes = config.model.num_classes or dataset.known_classes()
    is_needed = isinstance(config.class_weights, str) or config.train_data.class_sampling
    if is_needed or dataset.has_labels:
        return training_classes(dataset, classes)
    return Classes(np.zeros(0, np.int64), [str(number) for number in range(classes or 0)])


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
        if None not in (source.labels, self.labels) and source.labels != self.labels:
            names = [_format_names(labels) for labels in (source.labels, self.labels)]
            raise other_data_error(section, f"the classes {names[0]}", names[1])
        shape, dtype = source.with_channels(self.shape[2]).spec(input_size)
        if (shape, dtype) != (self.shape, self.dtype):
            got = f"images {list(shape)} of {dtype}"
            raise other_data_error(section, got, f"{list(self.shape)} of {self.dtype}")


def trained_images(config: ImageClassificationConfig, assets: Assets) -> TrainedImages:
    """Returns what a run found out about its training images; of a new run, finds it out.

    Raises `DataError` if the dataset cannot be read.
    """
    return assets.get_json(
        IMAGES_FILE,
        lambda: dataclasses.asdict(_describe(config)),
        lambda content: TrainedImages(**with_tuples(content)),
    )


def _describe(config: ImageClassificationConfig) -> TrainedImages:
    model = config.model
    source = section_source(config, config.train_data)
    shape, dtype = source.spec(model.input_size)
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


def _format_names(names: Sequence[str] | None) -> str:
    return shorten(", ".join(map(str, names or ())), 200)
