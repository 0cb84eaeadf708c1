"""Detects that training diverged: at records, evaluations and saves; then rolls back or ends.

A loop of steps is one graph, so a check knows the steps since the check before it, not the one that
is to blame. `step/bad_step.py` finds that one, for `runner replay RUN --find`.
"""

from __future__ import annotations

import contextlib
import math
import shlex
from typing import TYPE_CHECKING

from orbit_runner.config.schema.data import same_order_reason
from orbit_runner.errors import Diverged, RunnerError
from orbit_runner.run_directory.metric_records import (
    DIVERGED,
    RECOVERED,
    RESUMED,
    MetricLog,
    recoveries_of,
)
from orbit_runner.train.callbacks.base import Logs
from orbit_runner.utils.log import note
from orbit_runner.utils.metrics import scalars

if TYPE_CHECKING:
    from orbit_runner.train.run import Run


def check_losses(run: Run, logs: Logs) -> None:
    """Raises `Diverged` if the training loss is NaN, infinite or above its bound.

    Checks the loss of a loop, and of the records that ended within it.
    """
    assert run.trainer is not None
    if run.config.trainer.checks_divergence:
        for step, record in (*run.trainer.earlier_records, (run.step, logs)):
            _check_loss(run, step, float(record["training_loss"]))


def _check_loss(run: Run, step: int, loss: float) -> None:
    assert run.trainer is not None
    bound = run.config.trainer.loss_upper_bound
    # Where other loops end depends on the time that steps take.
    is_stop = run.plan.is_stop(step, evaluates=run.request.mode == "train_and_eval")
    is_above = is_stop and loss > bound and step >= run.config.trainer.recovery_begin_steps
    if math.isfinite(loss) and not is_above:
        return
    first = run.plan.record_start(step) + run.trainer.missing_steps(step) + 1
    what = "the loss" if first == step else "the mean loss"
    steps = f"step {step}" if first == step else f"steps {first} to {step}"
    reason = f"{what} of {steps} is {loss:g}"
    if math.isfinite(loss):
        raise Diverged(f"{reason}, allowed: at most {bound:g}", step=step, first_above=first)
    raise Diverged(reason, step=step)


def warn_of_evaluation(step: int, logs: Logs) -> None:
    """Prints a warning if results of the evaluation at a step are NaN or infinite.

    The weights may be fine, so training continues.
    """
    values = {name: value for name, value in scalars(logs).items() if not math.isfinite(value)}
    if values:
        results = ", ".join(f"{name} is {value:g}" for name, value in values.items())
        note(f"warning: the evaluation at step {step} is not finite: {results}")


def handle_divergence(run: Run, error: Diverged) -> None:
    """Returns to the last checkpoint after an error, if the run may.

    Otherwise, raises `Diverged` with the steps among which the cause is, and how to find it.
    """
    run.workers.acknowledge()
    with contextlib.suppress(Diverged):
        run.checkpoints.sync()  # The save in progress may be of weights that are not finite.
    event = {"event": DIVERGED, "reason": error.reason, "step": error.step}
    if error.first_above is not None:
        event["first_above"] = error.first_above
    run.records.write_event(event)
    if not can_roll_back(run) or run.checkpoints.find_latest() is None:
        raise Diverged(
            error.reason,
            step=error.step,
            first_above=error.first_above,
            advice=_advice(run, error),
        )
    _roll_back(run, error.reason)


def _advice(run: Run, error: Diverged) -> str:
    steps = run.checkpoints.folder.committed_steps()
    last_saved = max((step for step in steps if step < error.step), default=0)
    lines = []
    if error.first_above is None:
        several = f"one of steps {last_saved + 1} to {error.step}"
        which = several if last_saved + 1 < error.step else f"step {error.step}"
        lines.append(f"  the first step that is not finite is {which}")
    directory = shlex.quote(str(run.model_dir))
    lines.append(f"`runner replay {directory} --find` finds the step, its layer and its examples")
    trials = run.config.trainer.recovery_max_trials
    if int(run.state.recoveries.numpy()) >= trials > 0:
        advice = (
            "lower the learning rate, or check the data: the run has returned to its last "
            f"checkpoint as often as trainer.recovery_max_trials allows, {trials}"
        )
    else:
        bound = "" if error.first_above is None else "raise trainer.loss_upper_bound, "
        advice = (
            f"lower the learning rate, check the data, {bound}or set trainer.recovery_max_trials "
            "to roll back to the last checkpoint"
        )
    return "\n".join([*lines, advice])


def can_roll_back(run: Run) -> bool:
    """Returns whether trials are left after training diverged."""
    return int(run.state.recoveries.numpy()) < run.config.trainer.recovery_max_trials


def record_resume(run: Run) -> None:
    """Writes recoveries to `metrics.jsonl` if the records have another number of them.

    They do if the run was stopped before it saved a checkpoint after a recovery.
    """
    if not run.records.are_of_training:
        return
    count = int(run.state.recoveries.numpy())
    if recoveries_of(MetricLog(run.directory.metrics).recoveries(), run.step + 1) != count:
        run.records.write_event({"event": RESUMED, "recoveries": count})


def _roll_back(run: Run, reason: str) -> None:
    assert run.trainer is not None
    trials = int(run.state.recoveries.numpy()) + 1
    if run.checkpoints.restore_latest() is None:
        raise RunnerError(
            f"training diverged: {reason}\n"
            f"no intact checkpoint is left in {run.checkpoints.directory} to return to",
            code="diverged",
        )
    run.state.recoveries.assign(trials)
    run.trainer.rewind()
    run.restore_callbacks()
    run.records.write_event({"event": RECOVERED, "recoveries": trials})
    same_order = same_order_reason(run.section("train_data"))
    order = (
        f"the same order of examples, because {same_order}"
        if same_order
        else "another order of examples"
    )
    count = f"recovery {trials} of {run.config.trainer.recovery_max_trials}"
    note(
        f"training diverged: {reason}\n"
        f"  returned to step {run.step} ({count}), continuing with {order}"
    )
