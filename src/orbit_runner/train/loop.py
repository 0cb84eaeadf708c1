"""The outer loops, one for each mode, their order of operations stated."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import orbit

from orbit_runner.errors import Diverged, RunnerError
from orbit_runner.train.rollback import can_roll_back, record_divergence, roll_back
from orbit_runner.train.run import Run
from orbit_runner.train.stop_requests import StopTraining
from orbit_runner.utils.log import note, phase

_POLL_SECONDS = 1.0

Logs = dict[str, Any]


def run_mode(run: Run, controller: orbit.Controller, mode: str) -> Logs:
    """Trains, evaluates, or both.

    Args:
        run: The run, its state restored or at its beginning.
        controller: Its controller.
        mode: One of `MODES`.

    Returns:
        The result of the last evaluation; {} where there was none.
    """
    if mode == "eval":
        return evaluate_checkpoint(run, controller)
    if mode == "continuous_eval":
        return evaluate_continuously(run, controller)
    with run.stops.signals.installed_scope(), run.checkpoints.completed_saves_scope():
        logs = train(run, controller, evaluates=mode == "train_and_eval")
        if mode == "train_and_post_eval":
            logs = evaluate(run, controller)
    run.callbacks.on_train_end(run)
    return logs


def train(run: Run, controller: orbit.Controller, *, evaluates: bool) -> Logs:
    """Trains to the last step: train up to the next stop, evaluate if due, save if due.

    Where training diverges and trials are left, it returns to the last checkpoint. That weights
    are not finite may be known only once they are being saved, beside the steps that follow.

    Args:
        run: The run.
        controller: Its controller.
        evaluates: Whether to evaluate on the way.

    Returns:
        The result of the last evaluation; {} where there was none.
    """
    logs = Logs()
    run.callbacks.on_train_begin(run)
    if run.step >= run.train_steps or run.stops.reason:
        found = run.stops.reason or f"step {run.step} of {run.train_steps}"
        note(f"the run is finished: {found}")
        return evaluate(run, controller) if evaluates else logs
    run.leave_if_asked()
    if can_roll_back(run):
        run.checkpoints.save()  # So that there is something to go back to from the start.
    finished = False
    while not finished:
        try:
            logs = _train_to_next_stop(run, controller, logs, evaluates=evaluates)
            finished = run.step >= run.train_steps or bool(run.stops.reason)
            if finished:
                run.checkpoints.sync()  # Only now is it known that its weights are finite.
        except Diverged as error:
            record_divergence(run, error)
            if not can_roll_back(run):
                raise
            roll_back(run, error.reason)
            finished = False
    return logs


def _train_to_next_stop(
    run: Run, controller: orbit.Controller, logs: Logs, *, evaluates: bool
) -> Logs:
    """Trains, evaluates if due, saves if due; returns the result of the latest evaluation.

    Saving comes last, so that a checkpoint holds what its own evaluation changed (the memory of
    early stopping), and a run that is killed in between repeats the evaluation.
    """
    plan, stops = run.plan, run.stops
    target = stops.limit(plan.next_stop(run.step, evaluates=evaluates))
    with contextlib.suppress(StopTraining):
        controller.train(target, checkpoint_at_completion=False)
    if evaluates and (stops.agree() or plan.evaluates_at(run.step)):
        logs = evaluate(run, controller)
    if stops.agree():
        note(f"early stop at step {run.step}: {stops.reason}")
    if stops.reason or plan.saves_at(run.step):
        run.checkpoints.save()
    run.leave_if_asked()
    return logs


def evaluate(run: Run, controller: orbit.Controller) -> Logs:
    """Evaluates the weights as they are.

    Args:
        run: The run.
        controller: Its controller.

    Returns:
        The metrics.
    """
    phase(f"evaluating at step {run.step}")
    return controller.evaluate(run.validation_steps)


def evaluate_checkpoint(run: Run, controller: orbit.Controller) -> Logs:
    """Evaluates the newest checkpoint, or the weights that `init_checkpoint` gave.

    Args:
        run: The run.
        controller: Its controller.

    Returns:
        The metrics.

    Raises:
        RunnerError: There is neither.
    """
    if run.restored is None and not run.config.task.init_checkpoint:
        raise RunnerError(
            f"--model_dir: there is no whole checkpoint in {run.model_dir / 'checkpoints'}, "
            f"nor one of Model Garden in {run.model_dir}\n"
            "train first (--mode=train), or give the folder of a run"
        )
    return evaluate(run, controller)


def evaluate_continuously(run: Run, controller: orbit.Controller) -> Logs:
    """Evaluates each new checkpoint until that of the last step.

    Args:
        run: The run.
        controller: Its controller.

    Returns:
        The metrics of the last one.

    Raises:
        RunnerError: No new checkpoint came in time.
    """
    timeout = run.config.trainer.continuous_eval_timeout
    directory = run.checkpoints.directory
    logs, seen, waiting_since = Logs(), None, time.monotonic()
    phase(f"waiting for a checkpoint in {directory}")
    while True:
        newest = run.checkpoints.newest()
        if newest is not None and newest != seen:
            if not _restore(run, newest):
                continue
            logs, seen, waiting_since = evaluate(run, controller), newest, time.monotonic()
            if run.stops.agree() or 0 < run.train_steps <= run.step:
                return logs
            phase(f"waiting for a checkpoint after step {run.step}")
        elif timeout and run.workers.of_chief(time.monotonic() - waiting_since > timeout):
            raise RunnerError(
                f"no new checkpoint in {directory} for {timeout} s "
                "(trainer.continuous_eval_timeout)"
            )
        else:
            time.sleep(_POLL_SECONDS)


def _restore(run: Run, path: str) -> bool:
    problem = None
    try:
        run.checkpoints.check(path)
        run.checkpoints.restore(path)
    except RunnerError as error:
        problem = error
    if run.workers.all(problem is None):
        return True
    # The training run deletes old checkpoints, this one too while it was being read.
    if run.checkpoints.newest() == path:
        raise problem or RunnerError(f"another worker cannot read {path}")
    return False
