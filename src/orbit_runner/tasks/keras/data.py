"""What the Keras task reads: arrays, a table or images. Imports no TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from orbit_runner.config.errors import Problem, not_supported
from orbit_runner.config.schema.task_data import TaskData
from orbit_runner.data.fingerprint import DataFile, content_digest, describe_files
from orbit_runner.data.shared_examples import SharedExamples, shared_stored
from orbit_runner.data.tables.summary import TableSummary
from orbit_runner.errors import DataError
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.baselines import Baselines, constant_label
from orbit_runner.tasks.examples import DatasetExamples
from orbit_runner.tasks.image_classification.sources import label_problems, size_problems
from orbit_runner.tasks.imbalance.classes import Classes, imbalance_problems
from orbit_runner.tasks.keras.config import NO_SPLIT, SECTIONS, TABLE, KerasDataConfig
from orbit_runner.tasks.keras.examples import Examples, W, Y
from orbit_runner.tasks.keras.passed_objects import ARRAYS, script_problem
from orbit_runner.tasks.keras.sources import (
    TrainedArrays,
    mismatch_problems,
    section_source,
    source_files,
    trained_arrays,
)
from orbit_runner.tasks.keras.table_source import table_query
from orbit_runner.tasks.keras_items import leaves_of, split_item
from orbit_runner.tasks.table_checks import (
    shared_rows,
    summarize_table,
    table_problems,
    unused_columns,
)
from orbit_runner.utils.log import note_once

_NO_INDEX = "is not supported for a tf.data dataset, whose examples have no index"
_NO_CLASSES = (
    "is not supported for a tf.data dataset, whose labels cannot be counted before training\n"
    "give it weights w of the examples"
)


class KerasData(TaskData):
    """Arrays that a function returns or files contain, the rows of a table, or images."""

    excludes_examples = True

    def problems(self) -> Iterator[Problem]:
        """Yields problems with the functions, the arrays and the files."""
        yield from (problem.below("model") for problem in self.config.model.preflight())
        for name in ("loss", "metrics", "weighted_metrics", "optimizer"):
            for path, item in leaves_of(getattr(self.config, name), name):
                if problem := script_problem(split_item(item)[0]):
                    yield Problem(path, problem, code="import-failed")
        if self.config.kind == TABLE:
            query = table_query(self.config)
            problems = [*table_problems(query)]
            yield from problems
            if problems:
                return
            for line in unused_columns(query):
                note_once(f"note: {line}")
        sources: dict[str, Examples] = {}
        for section in SECTIONS:
            if section != SECTIONS[0] and not self._own_source(section) and not sources:
                break  # It is a part of the training data.
            data = getattr(self.config, section)
            problems = list(data.preflight()) if self._own_source(section) else []
            yield from (problem.below(section) for problem in problems)
            if problems:
                continue
            try:
                source = section_source(self.config, section)
                if source is not None:
                    if source.images is not None:
                        source.images.check()
                    _ = source.specs
                    sources[section] = source
            except DataError as error:
                yield Problem(self.setting_of_error(section, error), str(error), code=error.code)
        image_problems = [*self._image_problems(sources)]
        yield from image_problems
        if len(sources) == len(SECTIONS) and not image_problems:
            yield from mismatch_problems(*(source.specs for source in sources.values()))
        train = sources.get(SECTIONS[0])
        if train is not None and train.stored is not None:
            yield from imbalance_problems(self.config, train.stored.origins, train.classes)
        elif train is not None:
            yield from self._stream_problems()

    def _stream_problems(self) -> Iterator[Problem]:
        """Yields settings that need examples by index."""
        for name in ("exclude", "class_sampling"):
            if getattr(self.config.train_data, name):
                yield not_supported(f"train_data.{name}", _NO_INDEX)
        if self.config.class_weights:
            yield not_supported("class_weights", _NO_CLASSES)

    def _own_source(self, section: str) -> bool:
        return bool(getattr(self.config, section).source)

    def _image_problems(self, sources: Mapping[str, Examples]) -> Iterator[Problem]:
        images = {
            section: source.images
            for section, source in sources.items()
            if source.images is not None
        }
        if self.config.input_size is None:
            for problem in size_problems(images):
                yield dataclasses.replace(problem, path="image_size")
        named = {section: source.labels for section, source in images.items()}
        if len(named) == len(SECTIONS) and None not in named.values():
            yield from label_problems(images)

    def setting_of_error(self, section: str, error: DataError) -> str:
        """Returns the setting that an error of a dataset is about."""
        if error.field.startswith("split."):
            return error.field
        if not self._own_source(section):
            section = SECTIONS[0]
        return table_query(self.config).setting_of_error(section, error)

    def files(self) -> Mapping[str, Sequence[DataFile]]:
        """Returns the files, or the arrays that a function returned, of both sections.

        Also the file of the model, whose weights are the initial ones.
        """
        sections = (section for section in SECTIONS if self._own_source(section))
        files = {
            section: source_files(self.config, section)
            for section in sections
            if getattr(self.config, section).digest in ("", *ARRAYS)  # This process has them.
        }
        model = self.config.model.file
        return files | ({"model": describe_files([model], content_digest)} if model else {})

    @property
    def file_reading(self) -> str:
        """How a worker reads the files of the training data."""
        source = section_source(self.config, SECTIONS[0])
        return "memory" if source is None else source.file_reading

    def shared_examples(self) -> SharedExamples | None:
        """Returns the validation examples with the features of a training example, or None."""
        if self.config.kind == TABLE:
            return shared_rows(table_query(self.config), self.excluded_rows)
        train, validation = (section_source(self.config, section) for section in SECTIONS)
        if train is None or validation is None:
            return None
        if train.images is not None:
            return shared_stored(train.images, validation.stored, excluded=self.excluded_rows())
        advice = "" if self.config.row_parts else NO_SPLIT
        return shared_stored(
            train.stored, validation.stored, advice, self.excluded_rows(), (Y, W), "examples"
        )

    def training_examples(
        self, section: KerasDataConfig, model_dir: str | None
    ) -> DatasetExamples | None:
        """Returns which examples are in the batch of each training step.

        Returns None for a tf.data dataset, which only knows when it is run. Raises `DataError` if
        it has to leave examples out, which have no index.
        """
        source = self._train_source()
        if source.stored is None:
            if section.exclude:
                raise DataError(_NO_INDEX, field="exclude", code="not-supported")
            return None
        return DatasetExamples(source.stored, section, self.training_classes, source.describe_row)

    def training_classes(self) -> Classes:
        """Returns the class of each training example."""
        return self._train_source().classes()

    def _train_source(self) -> Examples:
        source = section_source(self.config, SECTIONS[0])
        assert source is not None  # `problems` of the config reports it.
        return source

    def baselines(self) -> Baselines:
        """Returns the results of the most frequent class, or of the mean, of each output."""
        excluded = self.excluded_rows()
        sources = [section_source(self.config, section) for section in SECTIONS]
        train, validation = (
            {} if source is None else source.labels_by_name() for source in sources
        )
        results: Baselines = {}
        for name in (name for name in train if name in validation):
            prefix = f"{name}_" if name else ""
            results |= constant_label(train[name], validation[name], excluded, prefix)
        return results

    def summary(self) -> TableSummary | None:
        """Returns a first look at a table, or None."""
        is_table = self.config.kind == TABLE
        return summarize_table(table_query(self.config)) if is_table else None

    def learn(self, assets: Assets) -> TrainedArrays:
        """Returns what the run found out about its arrays."""
        return trained_arrays(self.config, assets)
