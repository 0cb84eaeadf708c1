"""Computes the losses of the examples in a step, and finds the examples for which that fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from orbit_runner.errors import first_line
from orbit_runner.replay.examination import COMPUTED_IN_STEP, COMPUTED_PER_ROW, ExampleLoss
from orbit_runner.replay.instruments import Instruments, LossCall, rows_of

_MOST_ROWS = 8192  # A call for each row of a larger batch would take minutes.


def example_losses(instruments: Instruments, rows: int) -> tuple[list[ExampleLoss], str]:
    """Returns the loss of each row of a global batch, and where the losses come from.

    The list is empty if they are not known; the text is then the reason. Must be called after the
    step, outside of the instruments.
    """
    if instruments.loss_calls:
        return _collect_losses(instruments.loss_calls, _losses_of_call, rows, COMPUTED_IN_STEP)
    if not instruments.batch_loss_calls:
        return [], "the step did not call a loss function of the task"
    if rows > _MOST_ROWS:
        return [], f"the task has no losses of examples, and the batch has over {_MOST_ROWS} rows"
    return _collect_losses(
        instruments.batch_loss_calls, _compute_row_losses, rows, COMPUTED_PER_ROW
    )


_LossOrError = tuple[float | None, str]  # a loss, and the error in its place


def _collect_losses(
    calls: Sequence[LossCall], losses: Callable[[LossCall], list[_LossOrError]], rows: int, how: str
) -> tuple[list[ExampleLoss], str]:
    # The calls of a replica are in the order of the rows, but replicas may take turns.
    found = [one for call in sorted(calls, key=lambda call: call.replica) for one in losses(call)]
    if len(found) != rows and not any(call.result is None for call in calls):
        return [], "the loss function of the task does not return one loss for each example"
    return [
        ExampleLoss(row=row, loss=loss, error=error)
        for row, (loss, error) in enumerate(found[:rows])
    ], how


def _losses_of_call(call: LossCall) -> list[_LossOrError]:
    if call.result is None:
        return _compute_row_losses(call)
    values = np.asarray(call.result.numpy()).astype(np.float64)
    if not values.ndim:
        return []
    return [(float(one), "") for one in values.reshape(len(values), -1).mean(axis=1)]


def _compute_row_losses(call: LossCall) -> list[_LossOrError]:
    return [_compute_row_loss(call, row) for row in range(rows_of(call.arguments))]


def _compute_row_loss(call: LossCall, row: int) -> _LossOrError:
    arguments, keywords = _slice_row(call.arguments, row, rows_of(call.arguments))
    # The same for each row, such as weight decay.
    keywords |= {"aux_losses": None} if "aux_losses" in keywords else {}
    try:
        result = call.function(*arguments, **keywords)
    except Exception as error:
        return None, error_text(error)
    return float(tf.reduce_mean(tf.cast(result, tf.float32))), ""


def error_text(error: Exception) -> str:
    """Returns the first line of an error, without what TensorFlow adds about the op."""
    return re.sub(r"^\{\{.*?\}\} | \[Op:\w+\].*$", "", first_line(error))


def _slice_row(nested: Any, row: int, rows: int) -> Any:
    """Returns one row of nested tensors; those that do not have the rows of a batch are whole."""

    def slice_row(value: Any) -> Any:
        has_rows = isinstance(value, tf.RaggedTensor) or (
            tf.is_tensor(value) and value.shape.rank and value.shape[0] == rows
        )
        return value[row : row + 1] if has_rows else value

    return tf.nest.map_structure(slice_row, nested)
