"""The classes of training examples, their weights in the loss, and mixtures; no TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from orbit_runner.config.errors import Problem
from orbit_runner.data.order.epochs import NO_EXAMPLES
from orbit_runner.data.order.mixture import Mixture, make_mixture
from orbit_runner.data.tables.columns import Column
from orbit_runner.errors import DataError
from orbit_runner.tasks.imbalance.config import (
    BALANCED,
    MixedDataConfig,
    class_problems,
    weights_by_class,
)

if TYPE_CHECKING:
    from orbit_runner.data.arrays import Gathered


@dataclasses.dataclass(frozen=True)
class Classes:
    """The class of each training example.

    Attributes:
        numbers: The number of the class of each example, integers [n].
        names: The names of the classes, by number.
    """

    numbers: np.ndarray
    names: Sequence[str]

    def counts(self, excluded: np.ndarray = NO_EXAMPLES) -> np.ndarray:
        """Returns the number of examples of each class that are not excluded, int64 [classes]."""
        return np.bincount(np.delete(self.numbers, excluded), minlength=len(self.names))


def classes_of_labels(
    labels: np.ndarray | Gathered, names: Sequence[str] | None = None, count: int | None = None
) -> Classes:
    """Returns the classes of labels [n] or [n, 1], integers from 0, or one-hot [n, classes].

    Without `names`, the names are the numbers, of at least `count` classes. Raises `DataError` if
    the labels are not classes.
    """
    rows = np.asarray(labels)
    if rows.ndim == 2 and rows.shape[1] > 1 and _are_one_hot(rows):
        rows = rows.argmax(axis=1)
    if rows.ndim == 2 and rows.shape[1] == 1:
        rows = rows[:, 0]
    are_integers = rows.ndim == 1 and rows.dtype.kind in "iufb" and np.array_equal(rows, rows // 1)
    if not are_integers or rows.min() < 0:
        raise DataError(
            "the labels are not classes: expected integers from 0, one for each example",
            code="bad-data",
        )
    numbers = rows.astype(np.int64)
    size = max(int(numbers.max()) + 1, count or 0, len(names or ()))
    class_names = [*(names or ())]
    return Classes(
        numbers, [*class_names, *(str(number) for number in range(len(class_names), size))]
    )


def classes_of_column(column: Column) -> Classes:
    """Returns the classes of a categorical column: its texts that occur, in the order of codes."""
    codes, numbers = np.unique(column.values, return_inverse=True)
    return Classes(numbers, [column.vocabulary[code] if code >= 0 else "" for code in codes])


def class_weights(
    setting: str | Mapping[str, float],
    classes: Classes,
    excluded: np.ndarray = NO_EXAMPLES,
) -> dict[str, float]:
    """Returns the weight of each class in the loss, by name.

    `balanced` gives n / (classes · count), as scikit-learn's `compute_class_weight` does, so that
    all classes have the same weight in total, and the mean weight of an example is 1. A class
    without examples has the weight 1.
    """
    if setting != BALANCED:
        assert isinstance(setting, Mapping)
        weights = weights_by_class(setting, classes.names)
        return {name: float(weights[name]) for name in classes.names}
    counts = classes.counts(excluded)
    present = int((counts > 0).sum())
    total = int(counts.sum())
    return {
        name: total / (present * count) if count else 1.0
        for name, count in zip(classes.names, counts.tolist(), strict=True)
    }


def training_mixture(
    data: MixedDataConfig,
    origins: np.ndarray | None,
    classes: Callable[[], Classes],
    excluded: np.ndarray = NO_EXAMPLES,
) -> Mixture | None:
    """Returns the mixture that a section draws from, or None if all examples are equally likely.

    Args:
        data: The section.
        origins: The source of the mixture that each example comes from; None if there is only one.
        classes: Returns the classes of the examples.
        excluded: The examples to leave out.

    Raises:
        DataError: A source or a class with a weight has no examples, or there are other classes
            than the config lists.
    """
    setting = "mixture" if data.mixture else "class_sampling"
    if not data.is_training or not getattr(data, setting):
        return None
    if data.mixture:
        assert origins is not None
        groups = origins
        weights = [source.weight for source in data.mixture]
        names: Sequence[str] = [f"mixture[{number}]" for number in range(len(weights))]
    else:
        example_classes = classes()
        groups = example_classes.numbers
        names = example_classes.names
        for problem in class_problems("", data.class_sampling, names):
            raise DataError(problem.message, field=setting, code=problem.code)
        weights = [float(count > 0) for count in example_classes.counts(excluded)]
        if isinstance(data.class_sampling, Mapping):
            weights = [*class_weights(data.class_sampling, example_classes).values()]
    try:
        return make_mixture(groups, weights, names, excluded)
    except DataError as error:
        raise DataError(str(error), field=setting, code=error.code) from error


def imbalance_problems(
    config: Any, origins: np.ndarray | None, classes: Callable[[], Classes]
) -> Iterator[Problem]:
    """Yields (field, message) for weights and shares that do not fit the training data.

    `config` is that of the task. For the other arguments, see `training_mixture`.
    """
    data = config.train_data
    try:
        if config.class_weights:
            yield from class_problems("class_weights", config.class_weights, classes().names)
    except DataError as error:
        yield Problem("class_weights", str(error), code=error.code)
    try:
        training_mixture(data, origins, classes)
    except DataError as error:
        name = error.field if error.field in ("mixture", "class_sampling") else "class_sampling"
        yield Problem(f"train_data.{name}", str(error), code=error.code)


def _are_one_hot(rows: np.ndarray) -> bool:
    return rows.dtype.kind in "iufb" and bool(
        ((rows == 0) | (rows == 1)).all() and (rows.sum(axis=1) == 1).all()
    )
