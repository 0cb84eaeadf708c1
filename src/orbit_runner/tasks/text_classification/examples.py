"""The training examples of text classification: texts in the order of steps; no TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np

from orbit_runner.data.example_ids import find_row
from orbit_runner.data.order.epochs import Rows, ShuffledOrder
from orbit_runner.tasks.examples import find_excluded, order_of
from orbit_runner.tasks.tabular.data_config import TableDataConfig
from orbit_runner.tasks.tabular.sources import load_part, table_mixture
from orbit_runner.tasks.text_classification.config import TextClassificationConfig


class TextExamples:
    """The texts of the training data and their classes."""

    id_help = "an index as `runner batch` prints it, or FILE:ROW"

    def __init__(self, config: TextClassificationConfig, data: TableDataConfig) -> None:
        self._part = load_part(config.to_tabular_config(), "train_data")
        self._texts = self._part.column(config.text.column)
        self._labels = self._part.column(config.label_column)
        self.source = self._part.source.name
        self.excluded = find_excluded(data, self._part.size, self.find)
        shuffle = data.shuffle_buffer_size > 1
        sequence = ShuffledOrder(self._part.size, data.seed or 0, shuffle)
        mixture = table_mixture(config.to_tabular_config(), data, self.excluded)
        self.order = order_of(data, sequence, self.excluded, mixture)

    def describe(
        self, rows: Rows, chosen: np.ndarray, *, text: bool = False
    ) -> list[dict[str, Any]]:
        """Returns file and row, the class, and perhaps the text of each chosen row."""
        found = []
        for example in rows.examples[chosen].tolist():
            one = {"place": self._part.row_location(example), "class": self._labels.text(example)}
            found.append(one | ({"text": self._texts.text(example)} if text else {}))
        return found

    def find(self, text: str) -> int:
        """Returns the index of the text in a row of a file."""
        parts, rows = self._part.source.parts, self._part.rows
        return find_row(text, parts, rows, first=1, id_help=self.id_help)
