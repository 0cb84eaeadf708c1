"""What the tabular task reads: the rows of a table. Imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from orbit_runner.config.errors import Problem
from orbit_runner.config.schema.task_data import TaskData
from orbit_runner.data.fingerprint import DataFile
from orbit_runner.data.shared_examples import SharedExamples
from orbit_runner.data.tables.columns import TablePart
from orbit_runner.data.tables.summary import TableSummary
from orbit_runner.errors import DataError
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.baselines import constant_class, constant_number
from orbit_runner.tasks.examples import DatasetExamples
from orbit_runner.tasks.imbalance.classes import Classes, imbalance_problems
from orbit_runner.tasks.shared_config import SECTIONS
from orbit_runner.tasks.table_checks import shared_rows, summarize_table, table_problems
from orbit_runner.tasks.table_query import TRAIN, TableQuery
from orbit_runner.tasks.tabular.config import CLASSIFICATION, TabularConfig
from orbit_runner.tasks.tabular.data_config import TableDataConfig
from orbit_runner.tasks.tabular.sources import table_query, target_classes

if TYPE_CHECKING:
    from orbit_runner.tasks.tabular.preprocessing import Preprocessing
    from orbit_runner.utils.types import JsonObject


class TabularData(TaskData):
    """The rows of a table, in two sections."""

    excludes_examples = True
    file_reading = "memory"

    @property
    def query(self) -> TableQuery:
        """What the task reads of its tables."""
        return table_query(self.config)

    def problems(self) -> Iterator[Problem]:
        """Yields problems with the files, the columns and the values that a run needs."""
        problems = [*table_problems(self.query)]
        yield from problems
        if not problems:
            origins = self.query.part(TRAIN).origins
            yield from imbalance_problems(self.config, origins, self.training_classes)

    def files(self) -> Mapping[str, Sequence[DataFile]]:
        """Returns the files of both sections."""
        return {name: self.query.data_files(name) for name in SECTIONS}

    def shared_examples(self) -> SharedExamples | None:
        """Returns the validation rows with the features of a training row, or None."""
        return shared_rows(self.query, self.excluded_rows)

    def training_examples(self, section: TableDataConfig, model_dir: str | None) -> DatasetExamples:
        """Returns which rows are in the batch of each training step."""
        config = self.config
        part = self.query.part(TRAIN)
        columns = {
            "targets": [part.column(config.target.column)],
            "texts": [part.column(text.column) for text in config.features.text],
        }

        def describe(row: int, text: bool) -> JsonObject:
            return {
                kind: {column.name: column.text(row) for column in described}
                for kind, described in columns.items()
                if kind == "targets" or (text and described)
            }

        return DatasetExamples(part, section, self.training_classes, describe)

    def training_classes(self) -> Classes:
        """Returns the class of each training row."""
        return target_classes(self.config)

    def baselines(self) -> Mapping[str, tuple[str, float]]:
        """Returns the results of the majority class, or of the mean, of the training rows."""
        config = self.config
        train, validation = map(self.query.part, SECTIONS)
        excluded = self.excluded_rows()
        kept = np.ones(train.size, bool)
        if excluded is not None:
            kept[excluded] = False
        train_weights, weights = (_weights(config, part) for part in (train, validation))
        name = config.target.column
        column, other = train.column(name).take(kept), validation.column(name)
        weight_pair = (train_weights[kept], weights)
        if config.target.type == CLASSIFICATION:
            numbers = other.numbers(column.vocabulary)
            return constant_class(column.values, numbers, weight_pair)
        return constant_number(column.values, other.values, weight_pair)

    def summary(self) -> TableSummary | None:
        """Returns a first look at the table, or None if it cannot be read."""
        return summarize_table(self.query)

    def learn(self, assets: Assets) -> Preprocessing:
        """Returns the values fitted on the training rows of the run."""
        from orbit_runner.tasks.tabular.preprocessing import fitted_of_run  # It needs TensorFlow.

        return fitted_of_run(self.config, assets)

    def setting_of_error(self, section: str, error: DataError) -> str:
        """Returns the path, below `task`, of the setting that an error is about."""
        return self.query.setting_of_error(section, error)


def _weights(config: TabularConfig, part: TablePart) -> np.ndarray:
    """Returns the weights of the rows, float64 [rows]; 1 if the config has no column of them."""
    if not config.weight_column:
        return np.ones(part.size)
    return part.column(config.weight_column).values.astype(np.float64)
