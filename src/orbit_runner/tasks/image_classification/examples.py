"""The training examples of image classification; no TensorFlow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orbit_runner.data.dataset import Place
from orbit_runner.data.images.dataset import ImageDataset
from orbit_runner.data.order.epochs import Rows
from orbit_runner.tasks.examples import DatasetExamples
from orbit_runner.tasks.image_classification.config import ImageClassificationConfig
from orbit_runner.tasks.image_classification.data_config import ImageDataConfig
from orbit_runner.tasks.image_classification.sources import (
    image_mixture,
    load_source,
    section_source,
)

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject


class ImageExamples(DatasetExamples):
    """Images in memory, in TFRecord files or in separate files."""

    def __init__(self, dataset: ImageDataset, data: ImageDataConfig, classes: int | None) -> None:
        """Creates the examples of a section.

        `classes` is the number of classes, None if it is not known.
        """
        self._labels = dataset.labels
        super().__init__(
            dataset, data, mixture=lambda excluded: image_mixture(data, dataset, classes, excluded)
        )

    @classmethod
    def of_section(cls, config: ImageClassificationConfig, data: ImageDataConfig) -> ImageExamples:
        """Returns the examples of a section of image classification."""
        size = config.model.input_size
        classes = config.model.num_classes
        if classes is None:
            classes = section_source(config, config.train_data).known_classes()
        return cls(load_source(data, size, classes, config.row_split), data, classes)

    def describe(self, rows: Rows, chosen: np.ndarray, *, text: bool = False) -> list[JsonObject]:
        """Returns file and label of each chosen row."""
        del text
        return [self.place(example) for example in rows.examples[chosen].tolist()]

    def place(self, number: int) -> JsonObject:
        """Returns file and label of an image by its number in stored order."""
        return self._describe(self._dataset.place(number))

    def _describe(self, place: Place) -> JsonObject:
        names = self._labels
        label = place.label
        if label is None:
            return place.names
        described = place.names | {"label": label}
        if names is not None and isinstance(label, int) and 0 <= label < len(names):
            described["class"] = str(names[label])
        return described
