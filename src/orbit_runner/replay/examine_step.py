"""Runs the next step of a run under observation, without changing the run."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from orbit_runner.checkpoint.finite_check import count_non_finite
from orbit_runner.distribute.parameter_server import is_asynchronous
from orbit_runner.errors import RunnerError, unknown_name_message
from orbit_runner.inspection.step_batches import replayed_step
from orbit_runner.inspection.step_examples import TrainingOrder
from orbit_runner.replay.examination import (
    UPDATE,
    Examination,
    ExampleLoss,
    FirstBadValue,
    VariableStep,
    sort_worst_first,
)
from orbit_runner.replay.example_losses import error_text, example_losses
from orbit_runner.replay.instruments import Instruments, rows_of
from orbit_runner.replay.kept_state import KeptState, kept_state_scope
from orbit_runner.tasks.layer_names import layers_by_name, variable_names
from orbit_runner.utils.log import phase

if TYPE_CHECKING:
    from orbit_runner.train.run import Run

_OP = re.compile(r"__wrapped__(\w+?)_device_|node: (\w+)")


def examine_step(run: Run, *, layers: Sequence[str] = ()) -> Examination:
    """Runs the next step of a run eagerly, and returns what is found in it.

    All variables of the run keep their values, and its input pipeline its position, so that it can
    be called in the middle of training. The batch, the weights and the random draws are those of
    the step. Ops run one by one, so the last bits of the results may differ from the step in a
    graph.

    Args:
        run: A run that trains. The examined step is the one after `run.step`.
        layers: The layers whose outputs and gradients are returned as arrays, by their paths.

    Returns:
        What is found. An error of the step, such as an index that is out of range, is part of it.

    Raises:
        RunnerError: The run cannot be examined, has no layer of such a name, or has no more
            batches.
    """
    check_examinable(run, layers)
    assert run.trainer is not None
    step = run.step + 1
    phase(f"examining step {step}")
    batch = run.trainer.next_batch()
    parts = run.strategy.experimental_local_results(batch)
    sizes = [rows_of(part) for part in parts]
    instruments = Instruments(
        run.task,
        run.model,
        starts=[sum(sizes[:index]) for index in range(len(sizes))],
        batch=tf.nest.flatten(parts, expand_composites=True),
        pieces=run.config.trainer.gradient_accumulation_steps,
        kept_layers=layers,
    )
    with run.strategy.scope(), kept_state_scope(run) as kept, eager_functions_scope():
        error = _take_step(run, batch, instruments)
        found, losses = example_losses(instruments, sum(sizes))
        gradients = _sum_gradients(instruments)
        names = variable_names(run.model)
        variables = [
            _describe_variable(one, names.get(id(one), one.name), kept, gradients)
            for one in run.model.trainable_variables
        ]
    about = _describe_examples(run, step, batch, sum(sizes))
    return Examination(
        step=step,
        loss=_mean(instruments.losses),
        rows=sum(sizes),
        examples=sort_worst_first(
            [dataclasses.replace(one, about=about.get(one.row, {})) for one in found]
        ),
        losses=losses,
        variables=variables,
        first_bad=_find_first_bad(instruments, variables, error, found, len(parts)),
        layers=instruments.layers.summaries(),
        error="" if error is None else error_text(error),
        arrays={**instruments.layers.arrays(), **_gradient_arrays(run, layers, gradients)},
    )


def check_examinable(run: Run, layers: Sequence[str] = ()) -> None:
    """Raises `RunnerError` if a run cannot be examined, or if its model lacks one of the layers."""
    reason = ""
    if run.trainer is None:
        reason = "it does not train"
    elif run.adapter.subtasks:
        reason = "several tasks are trained together"
    elif is_asynchronous(run.strategy):
        reason = "asynchronous workers have no common step"
    elif run.config.runtime.traits.uses_tpu:
        reason = "ops on a TPU cannot be observed one by one"
    elif run.config.runtime.logical_replicas:
        reason = "runtime.logical_replicas is set, so a device computes its batch in parts"
    elif run.workers.count > 1:
        reason = "several processes train together"
    if reason:
        raise RunnerError(f"the steps of this run cannot be examined: {reason}")
    known = layers_by_name(run.model)
    for name in layers:
        if name not in known:
            raise RunnerError(f"--layer: {unknown_name_message('layer', name, [*known])}")


@contextlib.contextmanager
def eager_functions_scope() -> Iterator[None]:
    """Runs functions eagerly in a `with` block, also those that were traced before."""
    before, level = tf.config.functions_run_eagerly(), tf.get_logger().level
    tf.config.run_functions_eagerly(True)
    tf.get_logger().setLevel(logging.ERROR)  # It warns that this is slow.
    try:
        yield
    finally:
        tf.get_logger().setLevel(level)
        tf.config.run_functions_eagerly(before)


def _take_step(run: Run, batch: Any, instruments: Instruments) -> Exception | None:
    """Runs the step, and returns the error that it raised."""
    assert run.trainer is not None
    try:
        with instruments.installed_scope(run.state.optimizer):
            run.trainer.train_step(iter([batch]))
    except RunnerError:
        raise
    except Exception as error:
        return error
    return None


def _mean(losses: Sequence[Any]) -> float | None:
    return float(np.mean([float(one) for one in losses])) if losses else None


def _sum_gradients(instruments: Instruments) -> dict[int, np.ndarray]:
    """Returns the gradients of the whole batch by the `id` of their variables."""
    found: dict[int, np.ndarray] = {}
    for gradient, variable in instruments.gradients:
        value = tf.cast(tf.convert_to_tensor(gradient), tf.float32).numpy()
        key = id(variable)
        found[key] = found[key] + value if key in found else value
    return found


def _describe_variable(
    variable: Any, name: str, kept: KeptState, gradients: Mapping[int, np.ndarray]
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
    replicas: int,
) -> FirstBadValue | None:
    if error is not None:
        return _describe_failure(instruments, error, examples, replicas)
    updated = [one for one in variables if one.non_finite_updated]
    if not updated and not instruments.has_bad_result():
        return None
    bad = instruments.origin()
    if bad is None:
        return _bad_update(updated)
    return FirstBadValue(
        layer=bad.layer,
        op=bad.op,
        kind=bad.kind,
        phase=bad.phase,
        rows=bad.rows,
        replica=bad.replica if replicas > 1 and bad.phase != UPDATE else None,
        source=bad.source,
    )


def _bad_update(updated: Sequence[VariableStep]) -> FirstBadValue:
    """Returns the first bad value if the output of the op that led to it is unknown."""
    worst = next((one for one in updated if not one.non_finite_weights), None) or (
        updated[0] if updated else None
    )
    layer = worst.name.rpartition("/")[0] if worst is not None else ""
    source = "weights" if worst is not None and worst.non_finite_weights else ""
    return FirstBadValue(layer=layer, op="", kind="inf", phase=UPDATE, source=source)


def _describe_failure(
    instruments: Instruments, error: Exception, examples: Sequence[ExampleLoss], replicas: int
) -> FirstBadValue:
    place = instruments.failure
    match = _OP.search(str(error))
    return FirstBadValue(
        layer=place.layer if place is not None else "",
        op=next((one for one in match.groups() if one), "") if match else "",
        kind="error",
        phase=place.phase if place is not None else "",
        rows=tuple(one.row for one in examples if one.error),
        replica=place.replica if place is not None and replicas > 1 else None,
        message=error_text(error),
    )


def _describe_examples(run: Run, step: int, batch: Any, rows: int) -> dict[int, Mapping[str, Any]]:
    """Returns what is known about the example in each row of the global batch."""
    order = TrainingOrder(run.written_config, run.model_dir)
    if order.examples(order.recoveries(step)) is not None:
        found = order.step(step).chosen
    elif run.strategy.num_replicas_in_sync == 1:
        found = list(replayed_step(run.task, step, batch).rows)
    else:
        found = []
    if len(found) != rows:
        return {}
    return {one["row"]: {k: v for k, v in one.items() if k != "row"} for one in found}


def _gradient_arrays(
    run: Run, layers: Sequence[str], gradients: Mapping[int, np.ndarray]
) -> dict[str, np.ndarray]:
    """Returns the gradients of the weights of some layers, by layer and variable."""
    known, names = layers_by_name(run.model), variable_names(run.model)
    return {
        f"{names[id(variable)]}/gradient": gradients[id(variable)]
        for layer in layers
        for variable in known[layer].trainable_variables
        if id(variable) in gradients
    }
