"""What the image classification task reads: two sections of images. Imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orbit_runner.config.errors import Problem
from orbit_runner.config.schema.task_data import TaskData
from orbit_runner.data.fingerprint import DataFile
from orbit_runner.data.images.dataset import ImageDataset
from orbit_runner.data.shared_examples import SharedExamples, shared_stored
from orbit_runner.determinism.numerics_record import SCIPY
from orbit_runner.errors import DataError
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.baselines import Baselines, constant_label
from orbit_runner.tasks.examples import DatasetExamples
from orbit_runner.tasks.image_classification.data_config import ImageDataConfig
from orbit_runner.tasks.image_classification.sources import (
    TrainedImages,
    classes_of,
    mismatch_problems,
    section_source,
    size_problems,
    trained_images,
)
from orbit_runner.tasks.imbalance.classes import Classes, imbalance_problems
from orbit_runner.tasks.shared_config import SECTIONS

_OTHER_DATA = "set task.split, or name other data in validation_data"


class ImageData(TaskData):
    """Images and their classes, to train on and to evaluate on."""

    excludes_examples = True

    def source(self, section: str) -> ImageDataset:
        """Returns the images of a section, loaded once per process."""
        return section_source(self.config, getattr(self.config, section))

    def packages(self) -> Sequence[str]:
        """Returns SciPy for mixtures, which it computes the distribution of."""
        return (SCIPY,) if self.config.train_data.mixup_and_cutmix else ()

    def problems(self) -> Iterator[Problem]:
        """Yields problems with the files of the datasets."""
        model = self.config.model
        sources = {}
        for section in SECTIONS:
            try:
                source = self.source(section)
                source.spec(model.input_size)
                source.check()
                sources[section] = source
            except DataError as error:
                yield Problem(self.setting_of_error(section, error), str(error), code=error.code)
        if model.input_size is None:
            yield from size_problems(sources)
        yield from mismatch_problems(sources, model.num_classes, model.input_size)
        train = sources.get("train_data")
        if train is not None:
            yield from imbalance_problems(self.config, train.origins, self.training_classes)
        # `model.problems` checks a size that is set. Otherwise it is only known from the files.
        shape = None if model.input_size or train is None else train.spec(None)[0]
        problem = model.size_problem(shape) if shape else ""
        if problem:
            yield Problem("model.input_size", problem, code="data-mismatch")

    def files(self) -> Mapping[str, Sequence[DataFile]]:
        """Returns the files of both sections."""
        return {section: self.source(section).data_files() for section in SECTIONS}

    @property
    def file_reading(self) -> str:
        """How a worker reads the files of the training data."""
        return self.source("train_data").file_reading

    def shared_examples(self) -> SharedExamples | None:
        """Returns the validation images that are also training images, or None."""
        train, validation = (self.source(section) for section in SECTIONS)
        advice = self.config.validation_data.traits.separation or _OTHER_DATA
        if self.config.split:  # It separates files, and they have equal images.
            advice = ""
        return shared_stored(train, validation, advice, self.excluded_rows())

    def training_examples(self, section: ImageDataConfig, model_dir: str | None) -> DatasetExamples:
        """Returns which examples are in the batch of each training step."""
        return DatasetExamples(section_source(self.config, section), section, self.training_classes)

    def training_classes(self) -> Classes:
        """Returns the class of each training image; none if only their names are needed."""
        return classes_of(self.config, self.source("train_data"))

    def baselines(self) -> Baselines:
        """Returns the results of the most frequent class of the training images."""
        sources = [self.source(section) for section in SECTIONS]
        if not all(source.has_labels for source in sources):
            return {}
        train, validation = (source.class_numbers() for source in sources)
        return constant_label(train, validation, self.excluded_rows())

    def learn(self, assets: Assets) -> TrainedImages:
        """Returns what the run found out about its training images."""
        return trained_images(self.config, assets)
