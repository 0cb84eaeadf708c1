"""What the text classification task reads: a table of texts and classes. Imports no TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from orbit_runner.config.errors import Problem
from orbit_runner.data.tables.columns import TablePart
from orbit_runner.errors import DataError
from orbit_runner.tasks.tabular.data import TabularData
from orbit_runner.utils.types import JsonObject


class TextClassificationData(TabularData):
    """A table with a column of texts and a column of classes."""

    def problems(self) -> Iterator[Problem]:
        """Yields problems with the files, the columns and the values that a run needs."""
        for problem in super().problems():
            yield dataclasses.replace(problem, path=_setting_of_table(problem.path))

    def describe_rows(self, part: TablePart) -> Callable[[int, bool], JsonObject]:
        """Returns what `runner batch` says about a row: its class, and perhaps its text."""
        texts = part.column(self.config.text.column)
        labels = part.column(self.config.label_column)

        def describe(row: int, text: bool) -> JsonObject:
            return {"class": labels.text(row)} | ({"text": texts.text(row)} if text else {})

        return describe

    def setting_of_error(self, section: str, error: DataError) -> str:
        """Returns the path, below `task`, of the setting that an error is about."""
        return _setting_of_table(super().setting_of_error(section, error))


def _setting_of_table(path: str) -> str:
    """Converts the path of a setting of the table to that of this task, both without `task`."""
    if path.startswith("features"):
        return "text.column" if path.endswith("column") else "text"
    return "label_column" if path.startswith("targets") else path
