"""The table of what a run and `fit` compute: its columns are labels, its rows classes of Keras."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from orbit_runner.errors import RunnerError
from tests.support import fit as fits
from tests.support.fit import PACKAGES, ROWS, Arrays, Case, Tolerance, assert_equal

VALIDATION, TIMES = 61, 5
_WIDTH = 3


@dataclasses.dataclass(frozen=True)
class Labels:
    """Labels of `n` examples, and the output of a model that fits them."""

    make: Callable[[np.random.Generator, int], np.ndarray]
    width: int
    activation: str
    of_steps: bool = False
    are_classes: bool = False


def _classes(shape: Callable[[int], tuple[int, ...]], count: int, dtype: str = "int64") -> Any:
    return lambda rng, n: rng.integers(0, count, shape(n)).astype(dtype)


def _one_hot(shape: Callable[[int], tuple[int, ...]], dtype: str) -> Any:
    return lambda rng, n: np.eye(_WIDTH, dtype=dtype)[rng.integers(0, _WIDTH, shape(n))]


def _numbers(shape: Callable[[int], tuple[int, ...]]) -> Any:
    return lambda rng, n: rng.uniform(0.1, 2.0, shape(n)).astype(np.float32)


LABELS: Mapping[str, Labels] = {
    "classes": Labels(_classes(lambda n: (n,), 3), 3, "softmax", are_classes=True),
    "classes in a column": Labels(
        _classes(lambda n: (n, 1), 3, "int32"), 3, "softmax", are_classes=True
    ),
    "one-hot": Labels(_one_hot(lambda n: (n,), "float32"), 3, "softmax", are_classes=True),
    "one-hot integers": Labels(_one_hot(lambda n: (n,), "int64"), 3, "softmax", are_classes=True),
    "yes or no": Labels(_classes(lambda n: (n,), 2), 1, "sigmoid", are_classes=True),
    "yes or no in a column": Labels(
        _classes(lambda n: (n, 1), 2, "float32"), 1, "sigmoid", are_classes=True
    ),
    "several of three": Labels(_classes(lambda n: (n, 3), 2, "float32"), 3, "sigmoid"),
    "numbers": Labels(_numbers(lambda n: (n,)), 1, "softplus"),
    "rows of numbers": Labels(_numbers(lambda n: (n, 3)), 3, "softplus"),
    "rows of integers": Labels(_classes(lambda n: (n, 3), 4), 3, "softplus"),
    "classes of steps": Labels(_classes(lambda n: (n, TIMES), 3), 3, "softmax", of_steps=True),
    "classes of steps in a column": Labels(
        _classes(lambda n: (n, TIMES, 1), 3), 3, "softmax", of_steps=True
    ),
    "one-hot steps": Labels(_one_hot(lambda n: (n, TIMES), "float32"), 3, "softmax", of_steps=True),
    "yes or no of steps": Labels(_classes(lambda n: (n, TIMES, 1), 2), 1, "sigmoid", of_steps=True),
    "numbers of steps": Labels(_numbers(lambda n: (n, TIMES)), 1, "softplus", of_steps=True),
}


class Cell(NamedTuple):
    """A column of the table: labels, and whether there are masks and weights."""

    labels: str
    has_mask: bool = False
    weights: str = ""  # of examples, steps or classes

    def __str__(self) -> str:
        """Returns the name of the column."""
        parts = [
            self.labels,
            "masks" * self.has_mask,
            self.weights and f"weights of {self.weights}",
        ]
        return ", ".join(filter(None, parts))


def _cells() -> Iterator[Cell]:
    for name, labels in LABELS.items():
        for has_mask in (False, True) if labels.of_steps else (False,):
            yield Cell(name, has_mask)
            yield Cell(name, has_mask, "examples")
            if labels.of_steps:
                yield Cell(name, has_mask, "steps")
            if labels.are_classes:
                yield Cell(name, has_mask, "classes")


CELLS = [*_cells()]


@functools.cache
def arrays(cell: Cell, count: int, seed: int) -> Arrays:
    """Returns the examples of a column."""
    labels = LABELS[cell.labels]
    rng = np.random.default_rng(seed)
    shape = (count, TIMES, 4) if labels.of_steps else (count, 4)
    x = rng.normal(size=shape).astype(np.float32)
    if cell.has_mask:  # Each sequence has its length, and none is empty.
        x[np.arange(TIMES) >= rng.integers(1, TIMES + 1, count)[:, None]] = 0
    weights = {"examples": (count,), "steps": (count, TIMES)}.get(cell.weights)
    w = None if weights is None else rng.integers(0, 3, weights).astype(np.float32)
    return Arrays(x, labels.make(rng, count), w)


def _model(cell: Cell, package: Any) -> Any:
    labels = LABELS[cell.labels]
    inputs = package.Input([TIMES, 4] if labels.of_steps else [4])
    x = package.layers.Masking()(inputs) if cell.has_mask else inputs
    hidden = package.layers.Dense(4, activation="tanh")(x)
    out = package.layers.Dense(labels.width, activation=labels.activation)
    return package.Model(inputs, out(hidden))


def case_of(
    version: str,
    cell: Cell,
    compiled: Callable[[Any], Mapping[str, Any]],
    validation: int = VALIDATION,
) -> Case:
    """Returns a training of a column of the table."""
    weights = {0: 0.5, 1: 2.0, 2: 1.0} if cell.weights == "classes" else None
    if weights and LABELS[cell.labels].width == 1:
        del weights[2]
    data, held_out = arrays(cell, ROWS, 1), arrays(cell, validation, 2)
    return Case(version, functools.partial(_model, cell), data, compiled, held_out, weights)


def check(
    case: Case,
    folder: Path,
    tolerance: Tolerance = fits.FLOAT32,
    *,
    reason: str = "",
    form: str = "arguments",
) -> None:
    """Asserts that a run and `fit` compute the same, or refuse the same.

    Args:
        case: The training.
        folder: The run directory.
        tolerance: How much values may differ.
        reason: Why the run refuses what `fit` computes, if it does.
        form: See `fits.train`.
    """
    try:
        expected = None if reason else fits.fit(case)
    except Exception as error:  # Keras raises whatever an op raises.
        print(f"both refuse it; fit: {error!r:.300}")
        expected = None
    if expected is None or not np.isfinite(expected.training["loss"]).all():
        with pytest.raises(RunnerError):
            fits.train(case, folder, form)
        return
    assert_equal(fits.train(case, folder, form), expected, tolerance)


@functools.cache
def _built(version: str, cell: Cell) -> Any:
    return _model(cell, PACKAGES[version])


def accepts(case: Case, cell: Cell) -> bool:
    """Returns whether `fit` accepts a case of a column of the table."""
    return fits.accepts(case, _built(case.version, cell))


class Item(NamedTuple):
    """A class of Keras with arguments: a row of the table."""

    version: str
    name: str
    arguments: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        """Returns the name of the row."""
        return f"{self.version} {self.call}"

    @property
    def call(self) -> str:
        """The class and its arguments."""
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments)
        return f"{self.name}({arguments})"

    def make(self, module: Any, **arguments: Any) -> Any:
        """Returns a new object."""
        return getattr(module, self.name)(**dict(self.arguments), **arguments)


_PROBABILITIES = ("BinaryCrossentropy", "BinaryFocalCrossentropy")


def reason_of(item: Item, cell: Cell | None = None) -> str:
    """Returns why a run refuses a metric or an optimizer that `fit` computes; "" if it does not.

    With a cell, the item is a loss.
    """
    if cell is None:
        return _REFUSED.get(item.call) or _REFUSED.get(str(item), "")
    y = arrays(cell, ROWS, 1).y
    width = LABELS[cell.labels].width
    if item.name in _PROBABILITIES and y.max() > 1:
        return "the labels are no probabilities"
    if item.name == "SparseCategoricalCrossentropy" and "ignore_class" not in dict(item.arguments):
        steps = (TIMES,) if LABELS[cell.labels].of_steps else ()
        if width > 1 and y.shape[1:] == (*steps, width):
            return "the labels have the shape of the outputs, and are no class numbers"
        if y.max() >= width:
            return "the labels are no class numbers of the outputs"
    return ""


_REFUSED: Mapping[str, str] = {
    "F1Score()": "it returns a number for each class, and records are single numbers",
    "FBetaScore()": "it returns a number for each class, and records are single numbers",
    "2 Nadam()": "it counts while a step is traced, and its numbers depend on how often that is",
}


def class_names(module: Any, without: tuple[str, ...]) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and name not in without
    ]


def items(
    kind: str, without: tuple[str, ...], *arguments: Mapping[str, list[dict[str, Any]]]
) -> Iterator[Item]:
    """Yields each class of both packages, with its arguments: the last mapping is of Keras 3."""
    for version, package in PACKAGES.items():
        for name in class_names(getattr(package, kind), without):
            yield Item(version, name)
            for mapping in arguments[: 1 if version == "2" else None]:
                for values in mapping.get(name, []):
                    yield Item(version, name, tuple(values.items()))


def loss_of(package: Any, cell: Cell) -> Any:
    """Returns a loss that fits the labels of a column."""
    labels = LABELS[cell.labels]
    if labels.activation == "softmax":
        is_one_hot = cell.labels.startswith("one-hot")
        name = "CategoricalCrossentropy" if is_one_hot else "SparseCategoricalCrossentropy"
    else:
        name = "BinaryCrossentropy" if labels.activation == "sigmoid" else "MeanSquaredError"
    return getattr(package.losses, name)()
