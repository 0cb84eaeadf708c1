"""The classes of training images, and the mixture that they are drawn from; no TensorFlow."""

from __future__ import annotations

import numpy as np

from orbit_runner.data.images.files import FileSource
from orbit_runner.data.order.epochs import NO_EXAMPLES
from orbit_runner.data.order.mixture import Mixture
from orbit_runner.data.source import ArraySource
from orbit_runner.errors import DataError
from orbit_runner.tasks.image_classification.config import ImageClassificationConfig
from orbit_runner.tasks.image_classification.data_config import ImageDataConfig
from orbit_runner.tasks.image_classification.sources import Source, known_classes
from orbit_runner.tasks.imbalance.classes import Classes, classes_of_labels, training_mixture


def training_classes(source: Source, num_classes: int | None = None) -> Classes:
    """Returns the class of each image.

    `num_classes` is the number of outputs of the model, if the config sets it. Raises `DataError`
    if the labels are in records, which are only read in training.
    """
    if isinstance(source, FileSource):
        return classes_of_labels(source.label, source.labels, num_classes)
    if isinstance(source, ArraySource):
        return classes_of_labels(source.arrays["label"], source.labels, num_classes)
    raise DataError(
        f"{source.name}: the labels are in the records, so classes cannot be counted before "
        "training; use image files or arrays, or set class_weights to a weight for each class",
        field="source",
    )


def classes_of(config: ImageClassificationConfig, source: Source) -> Classes:
    """Returns the class of each training image; none if only names are needed."""
    classes = config.model.num_classes or known_classes(source)
    if isinstance(config.class_weights, str) or config.train_data.class_sampling:
        return training_classes(source, classes)
    if isinstance(source, FileSource | ArraySource):
        return training_classes(source, classes)
    return Classes(np.zeros(0, np.int64), [str(number) for number in range(classes or 0)])


def image_mixture(
    params: ImageDataConfig,
    source: Source,
    num_classes: int | None,
    excluded: np.ndarray = NO_EXAMPLES,
) -> Mixture | None:
    """Returns the mixture that training images are drawn from; None if all are equally likely."""
    return training_mixture(
        params,
        getattr(source, "origins", None),
        lambda: training_classes(source, num_classes),
        excluded,
    )
