"""What tasks know about the examples of training without running a pipeline; no TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np

from orbit_runner.config.schema.data import DataConfig
from orbit_runner.data.dataset import Dataset
from orbit_runner.data.order.epochs import NO_EXAMPLES, Rows, exclude_examples
from orbit_runner.data.order.mixture import MixtureOrder
from orbit_runner.data.order.steps import RowOrder, StepOrder
from orbit_runner.data.places import UnknownExample
from orbit_runner.errors import DataError
from orbit_runner.tasks.imbalance.classes import Classes, training_mixture
from orbit_runner.tasks.imbalance.config import MixedDataConfig

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject


class TrainingExamples(Protocol):
    """The examples of the training data.

    Attributes:
        source: The name of the data source.
        order: Which examples are in which step.
        excluded: Indices of the examples that `train_data.exclude` leaves out, int64 [k],
            ascending. They count in the indices, but are in no step.
        id_help: The forms of ids that `find` accepts, for messages.
    """

    source: str
    order: StepOrder
    excluded: np.ndarray
    id_help: str

    def describe(self, rows: Rows, chosen: np.ndarray, *, text: bool = False) -> list[JsonObject]:
        """Returns where each of some rows comes from, and its label.

        Args:
            rows: The rows of a global batch.
            chosen: The rows to describe, int64 [k].
            text: Whether to add the text of sentences.

        Returns:
            A dict per chosen row, which `json.dumps` accepts.
        """
        ...

    def find(self, text: str) -> int:
        """Returns the index of an example.

        Args:
            text: An index, or a place such as `FILE:LINE`.

        Raises:
            UnknownExample: If there is no such example.
        """
        ...


class DatasetExamples:
    """The training examples of a dataset whose training needs nothing but their order.

    Args:
        dataset: The dataset.
        data: The section of the training data.
        classes: Returns the class of each example.
        known: Returns what the task knows about an example besides what the dataset describes. The
            second argument is whether to add texts.
    """

    def __init__(
        self,
        dataset: Dataset,
        data: MixedDataConfig,
        classes: Callable[[], Classes],
        known: Callable[[int, bool], JsonObject] = lambda example, text: {},
    ) -> None:
        self._dataset = dataset
        self._known = known
        self.source = dataset.name
        self.id_help = dataset.id_help
        self.excluded = find_excluded(data, dataset.size, self.find)
        seed = data.seed or 0
        mixture = training_mixture(data, dataset.origins, classes, self.excluded)
        order = (
            exclude_examples(dataset.order(seed, data.shuffle_buffer_size), self.excluded)
            if mixture is None
            else MixtureOrder(mixture, seed, data.shuffle_buffer_size > 1)
        )
        self.order = RowOrder(order, data.global_batch_size)

    def describe(self, rows: Rows, chosen: np.ndarray, *, text: bool = False) -> list[JsonObject]:
        """Returns where each chosen row comes from, and what is known about it."""
        return [
            {**self._dataset.describe(example), **self._known(example, text)}
            for example in rows.examples[chosen].tolist()
        ]

    def find(self, text: str) -> int:
        """Returns the index of the example that an ID names."""
        return self._dataset.number_of(text)


def find_excluded(data: DataConfig, size: int, find: Callable[[str], int]) -> np.ndarray:
    """Returns the indices of the examples that `data.exclude` leaves out: int64 [k], ascending.

    Args:
        data: The section of the training data.
        size: The number of all examples.
        find: Returns the index of an ID; raises `UnknownExample` if there is none.

    Raises:
        DataError: An ID is unknown, or no example is left.
    """
    if not data.exclude:
        return NO_EXAMPLES
    ids = dict.fromkeys(map(str, data.exclude))
    indices = set[int]()
    problems = []
    for text in ids:
        try:
            indices.add(find(text))
        except UnknownExample as error:
            problems.append(error.reason)
    if problems:
        more = f"\nand {len(problems) - 1:,} more of {len(ids):,} IDs" if problems[1:] else ""
        raise DataError(problems[0] + more, field="exclude", code="unknown-example")
    if len(indices) == size:
        raise DataError(
            f"leaves out all {size:,} examples, expected fewer", field="exclude", code="empty-data"
        )
    return np.array(sorted(indices), np.int64)
