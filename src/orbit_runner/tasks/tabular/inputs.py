"""The rows of a section as arrays."""

from __future__ import annotations

import numpy as np

from orbit_runner.data.source import ArraySource
from orbit_runner.data.tables.columns import DAY_SECONDS, Column, TablePart
from orbit_runner.errors import DataError, nearest_name_hint, shorten
from orbit_runner.tasks.array_inputs import ArrayInputs
from orbit_runner.tasks.tabular.config import TabularConfig
from orbit_runner.tasks.tabular.layers import MISSING_DAY
from orbit_runner.tasks.tabular.networks import CATEGORICAL, DATES, NUMERIC, TOKENS
from orbit_runner.tasks.tabular.preprocessing import Preprocessing

INPUTS = ArrayInputs("features", "targets", "weight")


def make_arrays(config: TabularConfig, part: TablePart, fitted: Preprocessing) -> ArraySource:
    """Returns the rows of a part as arrays.

    `features` has `numeric`, float32 [n, columns], `categorical`, int32 [n, columns], `dates`,
    int32 [n, 2 * columns], the days since 1970 and the seconds of the day of each column, and
    `tokens`, int32 [n, tokens], the tokens of the text columns side by side.
    `targets` has int32 [n] or float32 [n] by name, and `weight` is float32 [n], if there is a
    column for it. Raises `DataError` if a row has a class that the run was not trained on.
    """
    features: dict[str, np.ndarray] = {}
    if fitted.numeric:
        features[NUMERIC] = _matrix(part, [*fitted.numeric], np.float32)
        for place, name in enumerate(fitted.numeric):
            features[NUMERIC][:, place] = part.column(name).values
    if fitted.categorical:
        features[CATEGORICAL] = _matrix(part, [*fitted.categorical], np.int32)
        for place, name in enumerate(fitted.categorical):
            features[CATEGORICAL][:, place] = fitted.codes(part.column(name))
    if fitted.dates:
        dates = [_days_and_seconds(part.column(name)) for name in fitted.dates]
        features[DATES] = np.concatenate(dates, axis=1)
    if fitted.texts:
        parts = [fit.tokens(part.column(name)) for name, fit in fitted.texts.items()]
        features[TOKENS] = np.concatenate(parts, axis=1) if parts[1:] else parts[0]
    targets = {name: _class_numbers(part, fitted, name) for name in fitted.classes}
    targets |= {name: np.asarray(part.column(name).values) for name in fitted.scales}
    arrays: dict[str, np.ndarray | dict[str, np.ndarray]] = {
        INPUTS.features: features,
        INPUTS.labels: targets,
    }
    if config.weight_column:
        weight = np.asarray(part.column(config.weight_column).values)
        # The mean is 1, so that the loss and the learning rate do not depend on the unit.
        arrays[INPUTS.weights] = weight / weight.mean(dtype=np.float64).astype(np.float32)
    return ArraySource(part.source.name, arrays, files=part.source.files, origins=part.origins)


def _days_and_seconds(column: Column) -> np.ndarray:
    """Returns the days since 1970 and the seconds of the day, int32 [n, 2]."""
    days, seconds = np.divmod(column.values, DAY_SECONDS)
    missing = column.is_missing()
    days[missing] = MISSING_DAY
    seconds[missing] = 0
    return np.stack([days, seconds], axis=1).astype(np.int32)


def _class_numbers(part: TablePart, fitted: Preprocessing, name: str) -> np.ndarray:
    """Returns the class of each row, int32 [n]."""
    column = part.column(name)
    numbers = fitted.class_numbers(column)
    unknown = np.flatnonzero(numbers < 0)
    if len(unknown):
        row = int(unknown[0])
        classes = fitted.classes[name]
        text = column.text(row)
        raise DataError(
            f"column {name!r} has the class {text!r} in {part.row_location(row)}, which the run "
            f"was not trained on{nearest_name_hint(text, classes)}\n"
            f"its classes: {shorten(', '.join(classes), 200)}",
            field="source",
            code="unknown-class",
        )
    return numbers


def _matrix(part: TablePart, names: list[str], dtype: type[np.float32 | np.int32]) -> np.ndarray:
    return np.empty((part.size, len(names)), dtype)
