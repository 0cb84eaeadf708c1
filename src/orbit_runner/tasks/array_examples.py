"""The training examples of tasks whose data are arrays in memory; no TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from orbit_runner.config.schema.data import DataConfig
from orbit_runner.data.order.epochs import Rows, ShuffledOrder
from orbit_runner.data.order.mixture import Mixture
from orbit_runner.tasks.examples import find_excluded, order_of


class ArrayExamples:
    """The rows of arrays.

    Args:
        name: The name of the data source.
        size: The number of rows.
        data: The section of the training data.
        describe_row: Returns what is known about a row.
        find_row: Returns the row that an ID names; the second argument is `id_help`.
        unit: The form of the ID of a row in its file.
        mixture: Returns the mixture that rows are drawn from, without the excluded ones.
    """

    def __init__(
        self,
        name: str,
        size: int,
        data: DataConfig,
        describe_row: Callable[[int], dict[str, Any]],
        find_row: Callable[[str, str], int],
        *,
        unit: str = "FILE:ROW",
        mixture: Callable[[np.ndarray], Mixture | None] = lambda _: None,
    ) -> None:
        self.source, self._describe_row, self._find_row = name, describe_row, find_row
        self.id_help = f"an index as `runner batch` prints it, or {unit}"
        self.excluded = find_excluded(data, size, self.find)
        sequence = ShuffledOrder(size, data.seed or 0, data.shuffle_buffer_size > 1)
        self.order = order_of(data, sequence, self.excluded, mixture(self.excluded))

    def describe(
        self, rows: Rows, chosen: np.ndarray, *, text: bool = False
    ) -> list[dict[str, Any]]:
        """Returns what is known about each chosen row."""
        del text
        return [self._describe_row(int(example)) for example in rows.examples[chosen]]

    def find(self, text: str) -> int:
        """Returns the index of the row that an ID names."""
        return self._find_row(text, self.id_help)


def label_of(labels: np.ndarray, row: int) -> dict[str, Any]:
    """Returns the label of a row if it is a number or a text, or else nothing."""
    label = labels[row]
    if np.size(label) != 1:
        return {}
    value = np.reshape(label, ()).item()
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return {"label": float(f"{value:.6g}") if isinstance(value, float) else value}
