"""What the text classification task reads: a table of texts and classes. Imports no TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from orbit_runner.config.errors import Problem
from orbit_runner.config.schema.task_data import TaskData
from orbit_runner.data.fingerprint import DataFile
from orbit_runner.data.shared_examples import SharedExamples
from orbit_runner.data.tables.summary import TableSummary
from orbit_runner.errors import DataError
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.examples import DatasetExamples
from orbit_runner.tasks.tabular.config import SECTIONS
from orbit_runner.tasks.tabular.data import TabularData
from orbit_runner.tasks.tabular.data_config import TableDataConfig
from orbit_runner.tasks.tabular.sources import load_part, table_mixture
from orbit_runner.tasks.text_classification.config import TextClassificationConfig

if TYPE_CHECKING:
    from orbit_runner.tasks.tabular.preprocessing import Preprocessing


class TextClassificationData(TaskData):
    """A table with a column of texts and a column of classes."""

    excludes_examples = True

    def __init__(self, config: TextClassificationConfig) -> None:
        super().__init__(config)
        self.table = TabularData(config.to_tabular_config())

    def problems(self) -> Iterator[Problem]:
        """Yields problems with the files, the columns and the values that a run needs."""
        for problem in self.table.problems():
            yield dataclasses.replace(problem, path=_setting_of_table(problem.path))

    def files(self) -> Mapping[str, Sequence[DataFile]]:
        """Returns the files of both sections."""
        return self.table.files()

    def file_reading(self) -> str:
        """Returns that each worker reads all files at the start."""
        return "memory"

    def packages(self) -> Sequence[str]:
        """Returns SentencePiece if the tokens are subwords."""
        return self.table.packages()

    def shared_examples(self) -> SharedExamples | None:
        """Returns the validation texts that are also training texts, or None."""
        return self.table.shared_examples()

    def training_examples(self, section: TableDataConfig, model_dir: str | None) -> DatasetExamples:
        """Returns which examples are in the batch of each training step."""
        table = self.table.config
        part = load_part(table, SECTIONS[0])
        texts = part.column(self.config.text.column)
        labels = part.column(self.config.label_column)

        def class_of(row: int, text: bool) -> dict[str, str]:
            return {"class": labels.text(row)} | ({"text": texts.text(row)} if text else {})

        return DatasetExamples(
            part, section, class_of, lambda excluded: table_mixture(table, section, excluded)
        )

    def baselines(self) -> Mapping[str, tuple[str, float]]:
        """Returns the result of the majority class of the training texts."""
        return self.table.baselines()

    def summary(self) -> TableSummary | None:
        """Returns a first look at the table, or None if it cannot be read."""
        return self.table.summary()

    def contents(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Returns the columns of both sections, and what is not used."""
        return self.table.contents()

    def learn(self, assets: Assets) -> Preprocessing:
        """Returns the classes, and the tokens that are fitted on the training texts."""
        return self.table.learn(assets)

    def setting_of_error(self, section: str, error: DataError) -> str:
        """Returns the path, below `task`, of the setting that an error is about."""
        return _setting_of_table(self.table.setting_of_error(section, error))


def _setting_of_table(path: str) -> str:
    """Converts the path of a setting of the table to that of this task, both without `task`."""
    if path.startswith("features"):
        return "text.column" if path.endswith("column") else "text"
    return "label_column" if path.startswith("targets") else path
