"""What the Keras task reads: arrays. Imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orbit_runner.config.schema.task_data import TaskData
from orbit_runner.data.fingerprint import DataFile, content_digest, describe_files
from orbit_runner.data.shared_examples import SharedExamples, shared_arrays
from orbit_runner.errors import DataError
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.examples import DatasetExamples
from orbit_runner.tasks.imbalance.classes import imbalance_problems
from orbit_runner.tasks.keras.config import NO_SPLIT, SECTIONS, KerasDataConfig
from orbit_runner.tasks.keras.sources import (
    W,
    Y,
    array_classes,
    array_mixture,
    label_of,
    mismatch_problems,
    section_source,
    source_files,
)
from orbit_runner.tasks.keras.trained_arrays import TrainedArrays, trained_arrays


class KerasData(TaskData):
    """Arrays that a function returns, that files contain, or that a program passed."""

    excludes_examples = True

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields problems with the functions and the arrays."""
        for name, message in self.config.model.preflight():
            yield f"model.{name}", message
        sources: dict[str, Any] = {}
        for section in SECTIONS:
            if section != SECTIONS[0] and self.config.validation_split and not sources:
                break  # It is a part of the training data.
            problems = list(getattr(self.config, section).preflight())
            yield from ((f"{section}.{name}", message) for name, message in problems)
            if problems:
                continue
            try:
                sources[section] = section_source(self.config, section)
            except DataError as error:
                yield self.setting_of_error(section, error), str(error)
        if len(sources) == len(SECTIONS):
            yield from mismatch_problems(*sources.values())
        train = sources.get(SECTIONS[0])
        if train is not None:
            yield from imbalance_problems(self.config, train.origins, lambda: array_classes(train))

    def files(self) -> Mapping[str, Sequence[DataFile]]:
        """Returns the files, or the arrays that a function returned, of both sections.

        Also the file of the model, whose weights are the initial ones.
        """
        sections = {name: getattr(self.config, name) for name in SECTIONS}
        files = {
            name: source_files(section) for name, section in sections.items() if section.source
        }
        model = self.config.model.file
        return files | ({"model": describe_files([model], content_digest)} if model else {})

    def file_reading(self) -> str:
        """Returns that each worker reads all files at the start."""
        return "memory"

    def shared_examples(self) -> SharedExamples | None:
        """Returns the validation examples with the features of a training example, or None."""
        train, validation = (section_source(self.config, section) for section in SECTIONS)
        if train is None or validation is None:
            return None
        excluded = self.excluded_rows()
        return shared_arrays(train, validation, (Y, W), advice=NO_SPLIT, excluded=excluded)

    def training_examples(self, section: KerasDataConfig, model_dir: str | None) -> DatasetExamples:
        """Returns which examples are in the batch of each training step."""
        source = section_source(self.config, SECTIONS[0])
        assert source is not None  # `problems` of the config reports it.
        labels = source.arrays[Y]
        return DatasetExamples(
            source,
            section,
            lambda row, text: label_of(labels, row),
            lambda excluded: array_mixture(section, source, excluded),
        )

    def learn(self, assets: Assets) -> TrainedArrays:
        """Returns what the run found out about its arrays."""
        return trained_arrays(self.config, assets)
