"""Config of the image classification task."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from orbit_runner.config.schema.base import Config, config_class, field
from orbit_runner.config.schema.experiment import TaskConfig
from orbit_runner.config.schema.weights import METRICS
from orbit_runner.errors import DataError
from orbit_runner.registry import IMAGE_MODELS, SOURCES
from orbit_runner.tasks.image_classification.data_config import (
    ImageDataConfig,
    enabled_augmentations,
    training_images,
    validation_images,
)
from orbit_runner.tasks.image_classification.models import ImageModelConfig
from orbit_runner.tasks.imbalance.config import (
    class_weights_field,
    source_problems,
    value_problems,
)
from orbit_runner.tasks.keras.keras_names import metric_problems
from orbit_runner.utils.log import note_once

_SECTIONS = ("train_data", "validation_data")
# How to evaluate on other images, by source.
_SEPARATE = {
    "image_folder": "put the images of each class into train/ and val/ in data_dir",
    "image_csv": "set labels_split in both sections",
    "synthetic": "set another seed in validation_data",
    "tfds": "set tfds_split in both sections, such as train[:90%] and train[90%:]",
}
_OTHER_DATA = "name other data in validation_data"


@config_class
class ClassificationLosses(Config):
    """The loss, with the fields of Model Garden's image classification."""

    loss_weight: float = field(1.0, gt=0.0, help="weight of the cross entropy in the loss")
    label_smoothing: float = field(
        0.0,
        ge=0.0,
        le=1.0,
        help="fraction of each label that is spread over all classes; ignored for mixed images",
    )
    l2_weight_decay: float = field(
        0.0,
        ge=0.0,
        help="L2 regularization; half of it times the sum of squared kernels is added to the loss",
    )


@config_class
class ImageClassificationConfig(TaskConfig):
    """Image classification with one label per image."""

    excludes_examples: ClassVar[bool] = True
    model: ImageModelConfig = field(
        factory=ImageModelConfig, help="the model", variants=IMAGE_MODELS
    )
    train_data: ImageDataConfig = field(factory=training_images, help="training data")
    validation_data: ImageDataConfig = field(factory=validation_images, help="validation data")
    losses: ClassificationLosses = field(factory=ClassificationLosses, help="the loss")
    class_weights: str | Mapping[str, Any] = class_weights_field()
    top_k: int = field(
        5,
        ge=2,
        help="k of the top-k accuracy, computed in evaluation if there are more than k classes",
    )

    metrics: list[str | Mapping[str, Any]] = field(
        (),
        weights=METRICS,
        added_later=True,
        help="more metrics of evaluations, by the names of Keras: [auc, {name: f1_score, average: "
        "macro}], or classes",
    )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields settings that are missing or unknown."""
        yield from super().problems()
        yield from value_problems("class_weights", self.class_weights)
        yield from metric_problems(self.metrics, taken=("accuracy", f"top_{self.top_k}_accuracy"))
        if not self.model.name:
            known = ", ".join(entry.name for entry in IMAGE_MODELS.entries())
            yield "model.name", f"is not set\nallowed: {known}"
        for section in _SECTIONS:
            data = getattr(self, section)
            known_sources = [entry.name for entry in SOURCES.entries()]
            yield from source_problems(section, data, known_sources)
        formats = {"tfrecord": "TFRecord", "array_record": "ArrayRecord"}
        if self.train_data.source in formats and self.model.num_classes is None:
            yield (
                "model.num_classes",
                f"is not set; {formats[self.train_data.source]} files do not contain the number of "
                "classes",
            )
        yield from self._split_problems()
        yield from self._augmentation_problems()

    def _split_problems(self) -> Iterator[tuple[str, str]]:
        names = ("source", "data_dir", "labels_file")
        train, validation = (getattr(self, section) for section in _SECTIONS)
        same = [getattr(train, name) == getattr(validation, name) for name in names]
        differs = train.labels_split != validation.labels_split
        if train.source == "image_csv" and all(same) and differs:
            yield (
                "validation_data.labels_split",
                "differs from that of train_data, so that a row may be in both sections\n"
                "set both to the same split",
            )

    def _augmentation_problems(self) -> Iterator[tuple[str, str]]:
        data, size = self.train_data, self.model.input_size
        fields = [name for name in enabled_augmentations(data) if name != "mixup_and_cutmix"]
        if data.augment == "inception":
            fields.append("augment")
        for name in fields:
            if size is None:
                yield f"train_data.{name}", "requires model.input_size, which is not set"
            elif name != "augment" and size[-1] != 3:
                yield f"train_data.{name}", f"requires images with 3 channels, got {size[-1]}"

    def preflight(self) -> Iterator[tuple[str, str]]:
        """Yields problems with the files of the datasets."""
        from orbit_runner.tasks.image_classification.sources import (
            image_notes,
            mismatch_problems,
            size_problems,
        )

        sources = {}
        for section in _SECTIONS:
            try:
                source = self._source(section)
                source.spec(self.model.input_size)
                source.check()
                sources[section] = source
            except DataError as error:
                yield f"{section}.{error.field}", str(error)
        for section, lines in image_notes(sources, self.model.input_size).items():
            for line in lines:
                note_once(f"note: {section}: {line}")
        if self.model.input_size is None:
            yield from size_problems(sources)
        yield from mismatch_problems(sources, self.model.num_classes, self.model.input_size)
        if "train_data" in sources:
            yield from self._imbalance_problems(sources["train_data"])
        # `model.problems` checks a size that is set. Otherwise it is only known from the files.
        shape = None if self.model.input_size else self.image_shape("train_data")
        problem = self.model.size_problem(shape) if shape else ""
        if problem:
            yield "model.input_size", problem

    def _imbalance_problems(self, source: Any) -> Iterator[tuple[str, str]]:
        from orbit_runner.tasks.image_classification.classes import classes_of
        from orbit_runner.tasks.imbalance.classes import imbalance_problems

        yield from imbalance_problems(self, source.origins, lambda: classes_of(self, source))

    def data_rows(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Returns channels and sizes of the images of each section, and what is not used."""
        from orbit_runner.tasks.image_classification.sources import image_rows

        sources = {}
        for section in _SECTIONS:
            with contextlib.suppress(DataError):  # Reported by `preflight`.
                sources[section] = self._source(section)
        return image_rows(sources, self.model.input_size)

    def training_examples(self, data: Any, model_dir: str | None) -> Any:
        """Returns which examples are in the batch of each training step."""
        from orbit_runner.tasks.image_classification.examples import ImageExamples

        return ImageExamples(self, data)

    def file_reading(self) -> str:
        """Returns how a worker reads the files of the training data."""
        reading: str = self._source("train_data").file_reading
        return reading

    def data_files(self) -> Mapping[str, Sequence[Any]]:
        """Returns the files of both sections."""
        return {name: self._source(name).data_files() for name in _SECTIONS}

    def shared_examples(self) -> Any:
        """Returns the validation images that are also training images, or None."""
        from orbit_runner.data.shared_examples import shared_images

        train, validation = (self._source(section) for section in _SECTIONS)
        advice = _SEPARATE.get(self.validation_data.source, _OTHER_DATA)
        return shared_images(train, validation, advice, self.excluded_rows())

    def image_shape(self, section: str) -> tuple[int, int, int] | None:
        """Returns height, width and channels of a section's images.

        None if the dataset cannot be read, which `preflight` reports.
        """
        try:
            shape: tuple[int, int, int] = self._source(section).spec(self.model.input_size)[0]
        except DataError:
            return None
        return shape

    def _source(self, section: str) -> Any:
        from orbit_runner.tasks.image_classification.sources import load_source

        return load_source(getattr(self, section), self.model.input_size, self.model.num_classes)
