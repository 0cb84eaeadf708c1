"""The outer loops, one for each mode, their order of operations stated."""

from __future__ import annotations

import time
from typing import Any

import orbit

from orbit_runner.errors import Diverged, RunnerError
from orbit_runner.train.run import Session

_POLL_SECONDS = 1.0

Logs = dict[str, Any]


def train(session: Session, controller: orbit.Controller, *, evaluates: bool) -> Logs:
    """Trains to the last step: train up to the next stop, evaluate if due, save if due.

    Where training diverges and trials are left, it returns to the last checkpoint. That weights
    are not finite may be known only once they are being saved, beside the steps that follow.

    Saving comes last, so that a checkpoint holds what its own evaluation changed (the memory of
    early stopping), and a run that is killed in between repeats the evaluation.

    Args:
        session: The run.
        controller: Its controller.
        evaluates: Whether to evaluate on the way.

    Returns:
        The result of the last evaluation; {} where there was none.
    """
    plan, logs = session.plan, Logs()
    session.observer.started(session.step, plan.train_steps)
    stop_reason = session.early_stop.earlier_reason() if session.early_stop else ""
    if session.step >= plan.train_steps or stop_reason:
        found = stop_reason or f"step {session.step} of {plan.train_steps}"
        session.observer.note(f"the run is finished: {found}")
        return evaluate(session, controller) if evaluates else logs
    if session.can_go_back():
        session.checkpoints.save()  # So that there is something to go back to from the start.
    finished = False
    while not finished:
        try:
            logs, stop_reason = _train_to_next_stop(session, controller, logs, evaluates=evaluates)
            finished = session.step >= plan.train_steps or bool(stop_reason)
            if finished:
                session.checkpoints.sync()  # Only now is it known that its weights are finite.
        except Diverged as error:
            session.record_divergence(error)
            if not session.can_go_back():
                raise
            session.go_back(error.reason)
            finished = False
    return logs


def _train_to_next_stop(
    session: Session, controller: orbit.Controller, logs: Logs, *, evaluates: bool
) -> tuple[Logs, str]:
    """Returns the newest result of an evaluation, and why training ends early; "" to go on."""
    plan, stop_reason = session.plan, ""
    target = plan.next_stop(session.step, evaluates=evaluates)
    controller.train(target, checkpoint_at_completion=False)
    if evaluates and plan.evaluates_at(session.step):
        logs = evaluate(session, controller)
        stop_reason = _early_stop(session, logs)
    if stop_reason or plan.saves_at(session.step):
        session.checkpoints.save()
    session.leave_if_signalled()
    return logs, stop_reason


def _early_stop(session: Session, logs: Logs) -> str:
    if session.early_stop is None:
        return ""
    reason = session.early_stop.reason(logs, session.step)
    if reason:
        session.observer.note(f"early stop at step {session.step}: {reason}")
    return reason


def evaluate(session: Session, controller: orbit.Controller) -> Logs:
    """Evaluates the weights as they are.

    Args:
        session: The run.
        controller: Its controller.

    Returns:
        The metrics.
    """
    session.observer.phase(f"evaluating at step {session.step}")
    return controller.evaluate(session.validation_steps)


def evaluate_checkpoint(session: Session, controller: orbit.Controller) -> Logs:
    """Evaluates the newest checkpoint, or the weights that `init_checkpoint` gave.

    Args:
        session: The run.
        controller: Its controller.

    Returns:
        The metrics.

    Raises:
        RunnerError: There is neither.
    """
    if session.restored is None and not session.config.task.init_checkpoint:
        raise RunnerError(
            f"--model_dir: there is no whole checkpoint in {session.model_dir / 'checkpoints'}, "
            f"nor one of Model Garden in {session.model_dir}\n"
            "train first (--mode=train), or give the folder of a run"
        )
    return evaluate(session, controller)


def evaluate_continuously(session: Session, controller: orbit.Controller) -> Logs:
    """Evaluates each new checkpoint until that of the last step.

    Args:
        session: The run.
        controller: Its controller.

    Returns:
        The metrics of the last one.

    Raises:
        RunnerError: No new checkpoint came in time.
    """
    timeout = session.config.trainer.continuous_eval_timeout
    directory = session.checkpoints.directory
    logs, seen, waiting_since = Logs(), None, time.monotonic()
    session.observer.phase(f"waiting for a checkpoint in {directory}")
    while True:
        newest = session.checkpoints.newest()
        if newest is not None and newest != seen:
            if not _restore(session, newest):
                continue
            logs, seen, waiting_since = evaluate(session, controller), newest, time.monotonic()
            if 0 < session.plan.train_steps <= session.step:
                return logs
            session.observer.phase(f"waiting for a checkpoint after step {session.step}")
        elif timeout and session.workers.of_chief(time.monotonic() - waiting_since > timeout):
            raise RunnerError(
                f"no new checkpoint in {directory} for {timeout} s "
                "(trainer.continuous_eval_timeout)"
            )
        else:
            time.sleep(_POLL_SECONDS)


def _restore(session: Session, path: str) -> bool:
    problem = None
    try:
        session.checkpoints.check(path)
        session.checkpoints.restore(path)
    except RunnerError as error:
        problem = error
    if session.workers.all(problem is None):
        return True
    # The training run deletes old checkpoints, this one too while it was being read.
    if session.checkpoints.newest() == path:
        raise problem or RunnerError(f"another worker cannot read {path}")
    return False
