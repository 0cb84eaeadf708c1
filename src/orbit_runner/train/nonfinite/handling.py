"""Decides what happens after training diverged: roll back, skip a step, or end the run."""

from __future__ import annotations

import contextlib
import math
import shlex
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.checkpoint.finite_check import describe_non_finite, non_finite_variables
from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.distribute.parameter_server import is_asynchronous
from orbit_runner.errors import Diverged, RunnerError
from orbit_runner.run_directory.metric_records import SKIPPED
from orbit_runner.train.nonfinite.first_bad_step import BadStep, find_first_bad_step
from orbit_runner.train.nonfinite.restart import restart
from orbit_runner.train.reproducibility import retraining_reasons
from orbit_runner.train.rollback import can_roll_back, record_divergence, record_event, roll_back
from orbit_runner.utils.log import note

if TYPE_CHECKING:
    from orbit_runner.train.run import Run

_MAX_EXAMPLES = 8


def check_initial_weights(run: Run) -> None:
    """Raises `Diverged` if a trained weight is not finite before the first step."""
    if is_asynchronous(run.strategy) or not run.config.trainer.checks_divergence:
        return
    variables = [one for one in run.state.model.trainable_variables if one.dtype.is_floating]
    # The sum tells without a copy of each weight; it may also overflow.
    squares = [tf.cast(tf.nn.l2_loss(one), tf.float32) for one in variables]
    is_finite = not squares or math.isfinite(tf.add_n(squares).numpy())
    found = [] if is_finite else non_finite_variables(variables)
    if not found:
        return
    source = getattr(run.config.for_task.task, "init_checkpoint", "")
    cause = (
        f"check the checkpoint of task.init_checkpoint, {source}"
        if source
        else "check the initializer of this layer, and the code that creates it"
    )
    raise Diverged(
        f"the initial weights are not finite, so no step was trained\n"
        f"  {describe_non_finite(found)}",
        non_finite=True,
        step=0,
        advice=cause,
    )


def handle_divergence(run: Run, error: Diverged) -> None:
    """Prepares the run to continue after an error: from the last checkpoint, or before a bad step.

    If a step is not finite, and steps can be trained again, the run searches for the first such
    step. It then continues from the last checkpoint, without that step or only up to it. Raises
    `Diverged` if the run ends now.
    """
    run.workers.acknowledge()
    if can_roll_back(run):
        record_divergence(run, error)
        roll_back(run, error.reason)
        return
    rolls_back = run.config.trainer.rolls_back
    if rolls_back:
        record_divergence(run, error)
        raise error.explain(recoveries=run.config.trainer.recovery_max_trials)
    if error.step is not None or not error.non_finite:
        record_divergence(run, error)
        raise error
    bad, problem = _search(run, error)
    if bad is None:
        record_divergence(run, error)
        raise error.explain(f"the first step that is not finite is unknown: {problem}")
    restart(run)
    if not _skip(run, bad):
        _end_run_before(run, bad)


def _search(run: Run, error: Diverged) -> tuple[BadStep | None, str]:
    """Returns the first step that is not finite, or None and why it is not known."""
    reasons = retraining_reasons(run)
    if reasons:
        return None, reasons[0]
    note(
        f"training diverged: {error.reason}\n"
        "  training again from the last checkpoint to find the first step that is not finite"
    )
    end = run.step
    found = find_first_bad_step(run, end)
    return found, f"training again up to step {end} did not find it"


def _skip(run: Run, bad: BadStep) -> bool:
    """Skips a step from now on, if the config allows that. Returns whether it does."""
    assert run.trainer is not None
    settings, skipped = run.config.trainer, run.trainer.skipped
    if settings.on_nonfinite != "skip" or len(skipped.found) >= settings.max_skipped_steps:
        return False
    skipped.found = tuple(sorted((*skipped.found, bad.step)))
    record_event(run, {"event": SKIPPED, "skipped": list(skipped.found), "reason": str(bad)})
    note(
        f"{bad}\n{_examples(run, bad.step)}"
        f"  skipping step {bad.step} ({len(skipped.found)} of {settings.max_skipped_steps}), "
        f"continuing from step {run.step}"
    )
    return True


def _end_run_before(run: Run, bad: BadStep) -> None:
    """Makes the run save the weights before a step, and end there with an error."""
    run.stops.end_with_error(bad.step - 1, _error(run, bad))
    note(f"{bad}\n  training from step {run.step} to {bad.step - 1} to save its weights")
    # The run may have reached that step already.
    try:
        run.exit_if_requested()
    except Diverged as error:
        record_divergence(run, error)
        raise


def _error(run: Run, bad: BadStep) -> Diverged:
    step, directory = bad.step, shlex.quote(str(run.model_dir))
    skipped = run.trainer.skipped.found if run.trainer is not None else ()
    used = f"; {len(skipped)} steps are skipped already" if skipped else ""
    return Diverged(
        str(bad),
        non_finite=True,
        step=step,
        advice=(
            f"{_examples(run, step)}"
            f"  saved: the weights of step {step - 1}\n"
            f"`runner replay {directory} --step={step}` shows the layers and the examples of the "
            "step\n"
            "lower the learning rate, check the data, or leave the step out: add --resume=override "
            f"with trainer.skip_steps: [{step}] or trainer.on_nonfinite: skip{used}"
        ),
    )


def _examples(run: Run, step: int) -> str:
    """Returns a line with the examples of a step, or "" if they are not known."""
    if run.config.is_official or not run.is_chief:
        return ""
    task, recoveries = run.config.task, int(run.state.recoveries.numpy())
    data = resolve_data_config(task.train_data, run.config.runtime, recoveries)
    found = None
    with contextlib.suppress(RunnerError, OSError):
        found = task.training_examples(data, str(run.model_dir))
    if found is None:
        return ""
    ids = [str(one) for one in found.order.rows(step - 1).examples.tolist() if one >= 0]
    more = f", … ({len(ids)} in all)" if len(ids) > _MAX_EXAMPLES else ""
    return f"  examples of step {step}: {', '.join(ids[:_MAX_EXAMPLES])}{more}\n"
