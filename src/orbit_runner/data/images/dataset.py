"""What a dataset of images is, however it is stored; does not import TensorFlow.

They are in memory (`ImageArrays`), or read from files when a batch needs them (`stored.py`). Tasks
and commands ask a dataset, and never which of them it is.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from orbit_runner.data.arrays import bytes_keys, leaves, stored_rows
from orbit_runner.data.dataset import Dataset, describe_label
from orbit_runner.data.fingerprint import DataFile, content_digest, describe_arrays, describe_files
from orbit_runner.data.images.headers import ImageSurvey
from orbit_runner.data.source import ArraySource
from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.tables.columns import Column
from orbit_runner.data.tables.hashing import hash_rows
from orbit_runner.data.tables.split import (
    RowSplit,
    positions,
    ranks,
    rows_of_fraction,
    rows_with_value,
)
from orbit_runner.errors import DataError

Size = Sequence[int] | None
Shape = tuple[int, int, int]
_Dataset = TypeVar("_Dataset", bound="ImageDataset")


class ImageDataset(Dataset):
    """A dataset of images and their classes.

    Attributes:
        labels: Names of the classes, None if they are not known.
        mean: Mean of each channel, or of all, in the unit of the pixels; None if it is not known.
        std: Standard deviation, likewise.
        survey: What the headers of images tell; None if there are none.
    """

    labels: tuple[str, ...] | None
    # The true mean is unknown, so by default pixel values of 0 to 255 become -1 to 1.
    mean: tuple[float, ...] | None = (127.5,)
    std: tuple[float, ...] | None = (127.5,)
    survey: ImageSurvey | None = None

    is_in_memory: ClassVar[bool] = False
    stored: ClassVar[str]  # Where the images are, for messages.
    graph_reader: ClassVar[str]  # The class that reads the images in a graph, `module:Class`.

    @property
    @abc.abstractmethod
    def file_reading(self) -> str:
        """Which files a worker reads: see `TaskData.file_reading`."""

    @abc.abstractmethod
    def data_files(self) -> list[DataFile]:
        """Returns descriptions of the files of the dataset."""

    @property
    @abc.abstractmethod
    def has_labels(self) -> bool:
        """Whether the classes of the images are known without reading the images."""

    @abc.abstractmethod
    def class_numbers(self) -> np.ndarray:
        """Returns the class of each image, integers [n]; reads all images unless `has_labels`."""

    @abc.abstractmethod
    def label(self, number: int) -> int | None:
        """Returns the class of an image, None if it has none."""

    def describe(self, number: int) -> dict[str, object]:
        """Returns where an image is stored, and its class."""
        return self.place(number) | describe_label(self.label(number), names=self.labels)

    @abc.abstractmethod
    def known_classes(self) -> int | None:
        """Returns the number of classes, or None if only reading all images would tell."""

    @abc.abstractmethod
    def spec(self, input_size: Size = None) -> tuple[Shape, str]:
        """Returns the shape, (height, width, channels), and the dtype of the images.

        `input_size` is the shape that images are resized to, if they are. Raises `DataError` if the
        dataset has no images, or none that can be resized to it.
        """

    @abc.abstractmethod
    def split_hashes(self) -> np.ndarray:
        """Returns the hash of each image that decides on its part, uint64 [n]."""

    def split_column(self, name: str, kind: str) -> Column:
        """Returns values of each image by which images can be split.

        Raises `DataError` if there are none of that name.
        """
        raise DataError(
            f"{self.name}: got {name!r}, but the images have no columns, expected none",
            code="unknown-column",
        )

    def with_channels(self: _Dataset, channels: int) -> _Dataset:
        """Returns a dataset whose images are converted to some channels when they are decoded."""
        return self

    def check(self) -> None:
        """Raises `DataError` if labels are negative or no integers, or pixels are not finite.

        Call it once, because it checks every image that is in memory.
        """
        return


def shape_tuple(shape: Sequence[int]) -> Shape:
    """Returns height, width and channels as a tuple."""
    height, width, channels = shape
    return height, width, channels


@cache_source(maxsize=4)
def join_images(datasets: tuple[ImageDataset, ...]) -> ImageDataset:
    """Returns the images of all datasets.

    Raises `DataError` if they are not stored in the same way, or if their classes differ.
    """
    first = datasets[0]
    for number, dataset in enumerate(datasets[1:], 1):
        if dataset.stored != first.stored:
            raise DataError(
                f"{dataset.name} cannot be mixed with {first.name} of mixture[0]: the images of "
                f"one are {dataset.stored}, and those of the other {first.stored}",
                field=f"mixture[{number}].source",
                code="data-mismatch",
            )
    return first.join(datasets)


@cache_source(maxsize=16)
def part_of_images(dataset: ImageDataset, split: RowSplit, part: str) -> ImageDataset:
    """Returns the images of a part, in order.

    Without columns in `split`, the hash of an image is that of its name; see `split_hashes`. Raises
    `DataError` if the part has no images, or if the dataset cannot be split so.
    """
    columns = []
    for name, kind in split.columns:
        try:
            columns.append(dataset.split_column(name, kind))
        except DataError as error:
            field = "split.column" if split.column else "split.hash_of"
            raise DataError(str(error), field=field, code=error.code) from None
    if split.column:
        return dataset.select(rows_with_value(columns[0], part))
    places = positions(hash_rows(columns) if columns else dataset.split_hashes(), split.seed)
    if split.is_stratified:
        places = ranks(places, dataset.class_numbers())
    return dataset.select(rows_of_fraction(places, dict(split.fractions), part))


@dataclasses.dataclass(frozen=True, eq=False)
class ImageArrays(ArraySource, ImageDataset):
    """Images in memory: the arrays `image` [n, height, width, channels] and `label` [n]."""

    stored = "in memory"
    file_reading = "memory"
    graph_reader = "orbit_runner.data.images.readers:ArrayReader"
    is_in_memory = True
    has_labels = True

    def data_files(self) -> list[DataFile]:
        """Returns descriptions of the files of the dataset, or of the arrays."""
        if self.files:
            return describe_files(self.files, content_digest)
        return [] if self.name == "synthetic" else describe_arrays(self.arrays)

    def select(self, rows: np.ndarray) -> ImageArrays:
        """Returns some of the images."""
        # A part may lack the last classes.
        classes = self.num_classes or int(self.class_numbers().max()) + 1
        return dataclasses.replace(super().select(rows), num_classes=classes)

    def split_hashes(self) -> np.ndarray:
        """Returns the hash of the pixels of each image, so that equal images are in one part."""
        images: np.ndarray = self.arrays["image"]
        return bytes_keys(image.tobytes() for image in images)

    def class_numbers(self) -> np.ndarray:
        """Returns the class of each image."""
        return np.asarray(self.arrays["label"])

    def label(self, number: int) -> int | None:
        """Returns the class of an image, None if it has none."""
        labels = self.arrays.get("label")
        return None if labels is None else labels[number]

    def known_classes(self) -> int | None:
        """Returns the number of classes."""
        if self.labels is not None:
            return len(self.labels)
        return self.num_classes or int(self.class_numbers().max()) + 1

    def spec(self, input_size: Size = None) -> tuple[Shape, str]:
        """Returns the shape and the dtype of the images."""
        image: Any = self.arrays.get("image", 0)
        if np.ndim(image) != 4:
            names = ", ".join(path for path, _ in leaves(self.arrays))
            raise DataError(
                f"{self.name}: got arrays {names}, expected `image` [n, height, width, channels]",
                field="source",
                code="wrong-type",
            )
        if input_size is None or tuple(input_size) == image.shape[1:]:
            return shape_tuple(image.shape[1:]), image.dtype.name
        if image.dtype != np.uint8 or image.shape[3] not in (1, 3):
            raise DataError(
                f"{self.name}: got images {list(image.shape[1:])} of {image.dtype}, expected uint8 "
                f"images with 1 or 3 channels, to resize to {list(input_size)}",
                field="source",
                code="wrong-type",
            )
        return shape_tuple(input_size), "uint8"

    def check(self) -> None:
        """Raises `DataError` if labels are negative or no integers, or pixels are not finite."""
        arrays = self.arrays
        label, image = (stored_rows(arrays.get(name, np.zeros(()))) for name in ("label", "image"))
        problem = ""
        if "label" not in arrays or label.ndim != 1 or label.dtype.kind not in "iu":
            got = f"{label.dtype} {list(label.shape)}" if "label" in arrays else "none"
            problem = f"got labels {got}, expected `label` [n] of integers"
        elif label.min() < 0:
            problem = f"got label {label.min()} in example {label.argmin()}, expected 0 or more"
        elif image.dtype.kind not in "iuf":
            problem = f"got images of {image.dtype}, expected numbers"
        elif image.dtype.kind == "f" and not np.isfinite(image.sum(dtype=np.float64)):
            finite = np.isfinite(image.reshape(len(image), -1)).all(axis=1)
            if not finite.all():
                problem = f"got pixels that are not finite in example {finite.argmin()}"
        if problem:
            raise DataError(f"{self.name}: {problem}", field="source", code="bad-data")
