"""The training examples of image classification, and their random draws; no TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np

from orbit_runner.data.example_ids import index_of, unknown_id_error
from orbit_runner.data.images.dataset import Place
from orbit_runner.data.order.epochs import Rows
from orbit_runner.tasks.examples import find_excluded, order_of
from orbit_runner.tasks.image_classification.augmentation_draws import AugmentationDraws
from orbit_runner.tasks.image_classification.classes import image_mixture
from orbit_runner.tasks.image_classification.config import ImageClassificationConfig
from orbit_runner.tasks.image_classification.data_config import ImageDataConfig
from orbit_runner.tasks.image_classification.sources import load_source


class ImageExamples:
    """Images in memory, in TFRecord files or in separate files."""

    def __init__(self, config: ImageClassificationConfig, data: ImageDataConfig) -> None:
        size, classes = config.model.input_size, config.model.num_classes
        if classes is None:
            classes = load_source(config.train_data, size).known_classes()
        self._dataset = load_source(data, size, classes)
        self.source = self._dataset.name
        self._draws = AugmentationDraws(data, self._dataset, size)
        self.id_help = f"an index as `runner batch` prints it{self._dataset.id_forms}"
        self.excluded = find_excluded(data, self._dataset.size, self.find)
        mixture = image_mixture(data, self._dataset, classes, self.excluded)
        order = self._dataset.order(data.seed or 0, data.shuffle_buffer_size)
        self.order = order_of(data, order, self.excluded, mixture)

    def describe(
        self, rows: Rows, chosen: np.ndarray, *, text: bool = False
    ) -> list[dict[str, Any]]:
        """Returns file, label and augmentation of each chosen row."""
        del text
        describe_draws = self._draws.row_describer(rows)
        described = []
        for row in chosen.tolist():
            place = self._dataset.place(int(rows.examples[row]))
            described.append(self._describe(place) | describe_draws(row, place.size))
        return described

    def place(self, number: int) -> dict[str, Any]:
        """Returns file and label of an image by its number in stored order."""
        return self._describe(self._dataset.place(number))

    def find(self, text: str) -> int:
        """Returns the index of the image that a place names."""
        index = index_of(text, self._dataset.size)
        matches = [index] if index is not None else [*self._dataset.find(text)]
        if len(matches) == 1:
            return matches[0]
        reason = f"is the end of {len(matches)} paths; add directories" if matches else ""
        similar = () if matches else self._dataset.similar_ids(text)
        raise unknown_id_error(text, self.id_help, reason, similar)

    def _describe(self, place: Place) -> dict[str, Any]:
        names, label = self._dataset.labels, place.label
        if label is None:
            return place.names
        described = place.names | {"label": label}
        if names is not None and isinstance(label, int) and 0 <= label < len(names):
            described["class"] = str(names[label])
        return described
