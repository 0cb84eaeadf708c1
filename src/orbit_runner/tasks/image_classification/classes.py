"""The classes of training images, and the mixture that they are drawn from; no TensorFlow."""

from __future__ import annotations

import numpy as np

from orbit_runner.data.images.dataset import ImageDataset
from orbit_runner.data.order.epochs import NO_EXAMPLES
from orbit_runner.data.order.mixture import Mixture
from orbit_runner.errors import DataError
from orbit_runner.tasks.image_classification.config import ImageClassificationConfig
from orbit_runner.tasks.image_classification.data_config import ImageDataConfig
from orbit_runner.tasks.imbalance.classes import Classes, classes_of_labels, training_mixture


def training_classes(dataset: ImageDataset, num_classes: int | None = None) -> Classes:
    """Returns the class of each image.

    `num_classes` is the number of outputs of the model, if the config sets it. Raises `DataError`
    if the labels are in records, which are only read in training.
    """
    numbers = dataset.class_numbers()
    if numbers is not None:
        return classes_of_labels(numbers, dataset.labels, num_classes)
    raise DataError(
        f"{dataset.name}: the labels are in the records, so classes cannot be counted before "
        "training; use image files or arrays, or set class_weights to a weight for each class",
        field="source",
    )


def classes_of(config: ImageClassificationConfig, dataset: ImageDataset) -> Classes:
    """Returns the class of each training image; none if only names are needed."""
    classes = config.model.num_classes or dataset.known_classes()
    if isinstance(config.class_weights, str) or config.train_data.class_sampling:
        return training_classes(dataset, classes)
    if dataset.class_numbers() is not None:
        return training_classes(dataset, classes)
    return Classes(np.zeros(0, np.int64), [str(number) for number in range(classes or 0)])


def image_mixture(
    params: ImageDataConfig,
    dataset: ImageDataset,
    num_classes: int | None,
    excluded: np.ndarray = NO_EXAMPLES,
) -> Mixture | None:
    """Returns the mixture that training images are drawn from; None if all are equally likely."""
    return training_mixture(
        params,
        dataset.origins,
        lambda: training_classes(dataset, num_classes),
        excluded,
    )
