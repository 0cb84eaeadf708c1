"""The rows of a section as arrays, and their batches as functions of (seed, step)."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from orbit_runner.data.order.mixture import Mixture
from orbit_runner.data.source import ArraySource
from orbit_runner.data.step_batches import Chunks
from orbit_runner.data.tables.columns import TablePart
from orbit_runner.errors import DataError, nearest_name_hint, shorten
from orbit_runner.tasks import array_inputs
from orbit_runner.tasks.tabular.config import TabularConfig
from orbit_runner.tasks.tabular.data_config import TableDataConfig
from orbit_runner.tasks.tabular.networks import CATEGORICAL, NUMERIC, TOKENS
from orbit_runner.tasks.tabular.preprocessing import Preprocessing

_FEATURES, _TARGETS, _WEIGHT = "features", "targets", "weight"


def make_arrays(config: TabularConfig, part: TablePart, fitted: Preprocessing) -> ArraySource:
    """Returns the rows of a part as arrays.

    `features` has `numeric`, float32 [n, columns], `categorical`, int32 [n, columns], and `tokens`,
    int32 [n, tokens], the tokens of the text columns side by side.
    `targets` has int32 [n] or float32 [n] by name, and `weight` is float32 [n], if there is a
    column for it. Raises `DataError` if a row has a class that the run was not trained on.
    """
    features: dict[str, Any] = {}
    if fitted.numeric:
        features[NUMERIC] = _matrix(part, [*fitted.numeric], np.float32)
        for place, name in enumerate(fitted.numeric):
            features[NUMERIC][:, place] = part.column(name).values
    if fitted.categorical:
        features[CATEGORICAL] = _matrix(part, [*fitted.categorical], np.int32)
        for place, name in enumerate(fitted.categorical):
            features[CATEGORICAL][:, place] = fitted.codes(part.column(name))
    if fitted.texts:
        parts = [fit.tokens(part.column(name)) for name, fit in fitted.texts.items()]
        features[TOKENS] = np.concatenate(parts, axis=1) if parts[1:] else parts[0]
    targets = {name: _class_numbers(part, fitted, name) for name in fitted.classes}
    targets |= {name: np.asarray(part.column(name).values) for name in fitted.scales}
    arrays = {_FEATURES: features, _TARGETS: targets}
    if config.weight_column:
        weight = np.asarray(part.column(config.weight_column).values)
        # The mean is 1, so that the loss and the learning rate do not depend on the unit.
        arrays[_WEIGHT] = weight / weight.mean(dtype=np.float64).astype(np.float32)
    return ArraySource(part.source.name, arrays, files=part.source.files, origins=part.origins)


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
        )
    return numbers


def _matrix(part: TablePart, names: list[str], dtype: Any) -> np.ndarray:
    return np.empty((part.size, len(names)), dtype)


def train_inputs(
    params: TableDataConfig,
    source: ArraySource,
    input_context: tf.distribute.InputContext | None,
    start_step: int | tf.Tensor,
    excluded: np.ndarray,
    mixture: Mixture | None = None,
) -> tf.data.Dataset:
    """Returns one worker's endless batches of `(features, targets)`, with weights if any.

    `start_step` is the step of the first batch.
    """
    return array_inputs.train_inputs(
        source,
        params,
        input_context,
        start_step,
        excluded=excluded,
        mixture=mixture,
        element=_train_element,
    )


def eval_inputs(
    params: TableDataConfig,
    source: ArraySource,
    input_context: tf.distribute.InputContext | None,
) -> tf.data.Dataset:
    """Returns one worker's batches of `(features, targets, counts)`, each row once.

    `counts` is 0 for rows that only fill up the last batch, else 1. If rows have weights, it is a
    pair of counts and weights.
    """
    return array_inputs.eval_inputs(source, params, input_context, element=_eval_element)


def chunks(
    params: TableDataConfig,
    source: ArraySource,
    replicas: int,
    excluded: np.ndarray,
    mixture: Mixture | None = None,
) -> Chunks:
    """Returns the batches of `train_inputs` or `eval_inputs` by step."""
    return array_inputs.step_chunks(
        source,
        params,
        replicas,
        excluded=excluded,
        mixture=mixture,
        element=_train_element,
        eval_element=_eval_element,
    )


def _train_element(batch: dict[str, Any]) -> Any:
    pair = batch[_FEATURES], batch[_TARGETS]
    return (*pair, batch[_WEIGHT]) if _WEIGHT in batch else pair


def _eval_element(batch: dict[str, Any], count: tf.Tensor) -> Any:
    counts = (count, batch[_WEIGHT]) if _WEIGHT in batch else count
    return batch[_FEATURES], batch[_TARGETS], counts
