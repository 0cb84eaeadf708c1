"""Runs the next step of a run under observation, without changing the run."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from orbit_runner.checkpoint.fingerprint import count_non_finite
from orbit_runner.distribute.process_group import is_asynchronous
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.step.batches import replayed_step
from orbit_runner.step.examples import TrainingOrder
from orbit_runner.step.instruments import Instruments, LossCall
from orbit_runner.step.layers import rows_of
from orbit_runner.step.results import (
    COMPUTED_IN_STEP,
    COMPUTED_PER_ROW,
    UPDATE,
    Examination,
    ExampleLoss,
    FirstBadValue,
    VariableStep,
    sort_worst_first,
)
from orbit_runner.tasks.layer_names import variable_names
from orbit_runner.utils.log import phase
from orbit_runner.utils.variables import tracked_variables

if TYPE_CHECKING:
    from orbit_runner.train.run import Run
    from orbit_runner.utils.types import JsonObject, Tensors

_OP = re.compile(r"__wrapped__(\w+?)_device_|node: (\w+)")


def examine_step(run: Run) -> Examination:
    """Runs the next step of a run eagerly, and returns what is found in it.

    All variables of the run keep their values, and its input pipeline its position, so that it can
    be called in the middle of training. The batch, the weights and the random draws are those of
    the step. Ops run one by one, so the last bits of the results may differ from the step in a
    graph.

    Args:
        run: A run that trains. The examined step is the one after `run.step`.

    Returns:
        What is found. An error of the step, such as an index that is out of range, is part of it.

    Raises:
        RunnerError: The run cannot be examined, or has no more batches.
    """
    check_examinable(run)
    assert run.trainer is not None
    step = run.step + 1
    phase(f"examining step {step}")
    batch = run.trainer.next_batch()
    parts = run.strategy.experimental_local_results(batch)
    sizes = [rows_of(part) for part in parts]
    rows = sum(sizes)
    instruments = Instruments(
        run.task,
        run.model,
        starts=[sum(sizes[:index]) for index in range(len(sizes))],
        batch=tf.nest.flatten(parts, expand_composites=True),
        pieces=run.config.trainer.gradient_accumulation_steps,
    )
    with run.strategy.scope(), contextlib.ExitStack() as stack:
        before = KeptState(run)
        stack.callback(before.restore)
        stack.enter_context(_eager_functions_scope())
        error: Exception | None = None
        try:
            with instruments.installed_scope(run.state.optimizer):
                run.trainer.train_step(iter([batch]))
        except RunnerError:
            raise
        except Exception as caught:
            error = caught
        examples, origin = _example_losses(instruments, rows)
        gradients: dict[int, Any] = collections.defaultdict(float)  # of the whole batch
        for gradient, variable in instruments.gradients:
            value = tf.cast(tf.convert_to_tensor(gradient), tf.float32)
            gradients[id(variable)] += value.numpy()
        names = variable_names(run.model)
        variables = [
            _describe_variable(variable, names.get(id(variable), variable.name), before, gradients)
            for variable in run.model.trainable_variables
        ]
    about = _describe_examples(run, step, batch, rows)
    losses = instruments.losses
    return Examination(
        step=step,
        loss=float(np.mean([float(loss) for loss in losses])) if losses else None,
        rows=rows,
        examples=sort_worst_first(
            [dataclasses.replace(example, about=about.get(example.row, {})) for example in examples]
        ),
        losses=origin,
        variables=variables,
        first_bad=_find_first_bad(instruments, variables, error, examples),
        error="" if error is None else _error_text(error),
    )


def check_examinable(run: Run) -> None:
    """Raises `RunnerError` if the steps of a run cannot be examined."""
    reason = examination_obstacle(run)
    if reason:
        raise RunnerError(
            f"the steps of this run cannot be examined: {reason}", code="not-repeatable"
        )


def examination_obstacle(run: Run) -> str:
    """Returns why the steps of a run cannot be examined; "" if they can."""
    runtime = run.config.runtime
    obstacles = {
        "it does not train": run.trainer is None,
        "several tasks are trained together": run.adapter.subtasks,
        "asynchronous workers have no common step": is_asynchronous(run.strategy),
        "ops on a TPU cannot be observed one by one": runtime.traits.uses_tpu,
        "runtime.logical_replicas is set, so a device computes its batch in parts": (
            runtime.logical_replicas
        ),
        "several processes train together": run.workers.count > 1,
    }
    return next((reason for reason, holds in obstacles.items() if holds), "")


@contextlib.contextmanager
def _eager_functions_scope() -> Iterator[None]:
    """Runs functions eagerly in a `with` block, also those that were traced before."""
    before = tf.config.functions_run_eagerly()
    level = tf.get_logger().level
    tf.config.run_functions_eagerly(True)
    tf.get_logger().setLevel(logging.ERROR)  # It warns that this is slow.
    try:
        yield
    finally:
        tf.get_logger().setLevel(level)
        tf.config.run_functions_eagerly(before)


def _describe_variable(
    variable: tf.Variable, name: str, kept: KeptState, gradients: Mapping[int, np.ndarray]
) -> VariableStep:
    before, after = kept.value(variable), np.asarray(variable.numpy())
    gradient = gradients.get(id(variable))
    return VariableStep(
        name=name,
        weight_norm=_norm(before),
        gradient_norm=None if gradient is None else _norm(gradient),
        update_norm=_norm(after.astype(np.float64) - before.astype(np.float64)),
        non_finite_weights=count_non_finite(before),
        non_finite_gradients=0 if gradient is None else count_non_finite(gradient),
        non_finite_updated=count_non_finite(after),
    )


def _norm(value: np.ndarray) -> float:
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.linalg.norm(value.astype(np.float64)))


def _find_first_bad(
    instruments: Instruments,
    variables: Sequence[VariableStep],
    error: Exception | None,
    examples: Sequence[ExampleLoss],
) -> FirstBadValue | None:
    if error is not None:
        place = instruments.failure or FirstBadValue(layer="", op="", kind="error", phase="")
        match = _OP.search(str(error))
        return dataclasses.replace(
            place,
            op=next(filter(None, match.groups()), "") if match else "",
            rows=tuple(example.row for example in examples if example.error),
            message=_error_text(error),
        )
    updated = [variable for variable in variables if variable.non_finite_updated]
    if not updated and not instruments.has_bad_result():
        return None
    origin = instruments.origin()
    if origin is not None:
        return origin
    # The output of the op is unknown. Variables that were finite before the step come first.
    worst = min(updated, key=lambda variable: variable.non_finite_weights > 0, default=None)
    layer = worst.name.rpartition("/")[0] if worst else ""
    source = "weights" if worst and worst.non_finite_weights else ""
    return FirstBadValue(layer=layer, op="", kind="inf", phase=UPDATE, source=source)


def _describe_examples(
    run: Run, step: int, batch: Tensors, rows: int
) -> dict[int, Mapping[str, object]]:
    """Returns what is known about the example in each row of the global batch."""
    order = TrainingOrder(run.written_config, run.model_dir)
    described: Sequence[JsonObject] = ()
    if order.examples(order.recoveries(step)) is not None:
        described = order.step(step).chosen
    elif run.strategy.num_replicas_in_sync == 1:
        described = replayed_step(run.task, step, batch).rows
    if len(described) != rows:
        return {}
    return {about["row"]: {k: v for k, v in about.items() if k != "row"} for about in described}


class KeptState:
    """Copies of all variables of a run that trains: of its state, its trainer and its task."""

    def __init__(self, run: Run) -> None:
        assert run.trainer is not None
        state = run.state
        variables = tracked_variables(state.checkpoint())
        # A checkpoint finds slots and averages by their weights only.
        averages = () if state.ema is None else state.ema.averages
        variables += [*state.optimizer_variables(), *averages, *run.trainer.variables]
        parts_of = run.strategy.experimental_local_results
        # Each replica may have a value of its own.
        self._copies = {
            key: [(part, np.array(part.numpy())) for part in parts_of(variable)]
            for key, variable in {id(variable): variable for variable in variables}.items()
        }

    def value(self, variable: tf.Variable) -> np.ndarray:
        """Returns the value that a variable had, on the first replica."""
        return self._copies[id(variable)][0][1]

    def restore(self) -> None:
        """Assigns the copies to the variables."""
        for parts in self._copies.values():
            for part, value in parts:
                part.assign(value)


_MOST_ROWS = 8192  # A call for each row of a larger batch would take minutes.


_LossOrError = tuple[float | None, str]  # a loss, and the error in its place


def _example_losses(instruments: Instruments, rows: int) -> tuple[list[ExampleLoss], str]:
    """Returns the loss of each row of a global batch, and where the losses come from.

    The list is empty if they are not known; the text is then the reason. Must be called after the
    step, outside of the instruments.
    """
    calls, compute, origin = instruments.loss_calls, _losses_of_call, COMPUTED_IN_STEP
    if not calls:
        calls, compute, origin = instruments.batch_loss_calls, _compute_row_losses, COMPUTED_PER_ROW
        if not calls:
            return [], "the step did not call a loss function of the task"
        if rows > _MOST_ROWS:
            most = f"the batch has over {_MOST_ROWS} rows"
            return [], f"the task has no losses of examples, and {most}"
    # The calls of a replica are in the order of the rows, but replicas may take turns.
    ordered = sorted(calls, key=lambda call: call.replica)
    results = [result for call in ordered for result in compute(call)]
    if len(results) != rows and not any(call.result is None for call in calls):
        return [], "the loss function of the task does not return one loss for each example"
    losses = [
        ExampleLoss(row=row, loss=loss, error=error)
        for row, (loss, error) in enumerate(results[:rows])
    ]
    return losses, origin


def _losses_of_call(call: LossCall) -> list[_LossOrError]:
    if call.result is None:
        return _compute_row_losses(call)
    values = np.asarray(call.result.numpy()).astype(np.float64)
    if not values.ndim:
        return []
    return [(float(loss), "") for loss in values.reshape(len(values), -1).mean(axis=1)]


def _compute_row_losses(call: LossCall) -> list[_LossOrError]:
    rows = rows_of(call.arguments)
    return [_compute_row_loss(call, row, rows) for row in range(rows)]


def _compute_row_loss(call: LossCall, row: int, rows: int) -> _LossOrError:
    """Returns the loss of one row; tensors that do not have the rows of a batch are whole."""

    def slice_row(value: Any) -> Any:
        has_rows = isinstance(value, tf.RaggedTensor) or (
            tf.is_tensor(value) and value.shape.rank and value.shape[0] == rows
        )
        return value[row : row + 1] if has_rows else value

    arguments, keywords = tf.nest.map_structure(slice_row, call.arguments)
    # The same for each row, such as weight decay.
    keywords |= {"aux_losses": None} if "aux_losses" in keywords else {}
    try:
        result = call.function(*arguments, **keywords)
    except Exception as error:
        return None, _error_text(error)
    return float(tf.reduce_mean(tf.cast(result, tf.float32))), ""


def _error_text(error: Exception) -> str:
    """Returns the first line of an error, without what TensorFlow adds about the op."""
    return re.sub(r"^\{\{.*?\}\} | \[Op:\w+\].*$", "", first_line(error))
