"""The outer loops, one for each mode, with the order of their operations.

Orbit's controller runs the inner loops, and calls what follows each of them.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import time
from collections.abc import Iterator
from typing import Any

import orbit
import tensorflow as tf

from orbit_runner.distribute.process_group import local_strategy
from orbit_runner.errors import Diverged, RunnerError
from orbit_runner.run_directory.evaluations import write_evaluation
from orbit_runner.run_directory.run_lock import RunDirectoryRemoved, RunLock
from orbit_runner.tf_internals import orbit_log_scope
from orbit_runner.train.divergence import (
    can_roll_back,
    check_losses,
    handle_divergence,
    record_resume,
    warn_of_evaluation,
)
from orbit_runner.train.error_messages import VALIDATION_DATA, error_message_scope
from orbit_runner.train.run import Run
from orbit_runner.train.stop_requests import StopTraining
from orbit_runner.utils.log import note, phase
from orbit_runner.utils.metrics import scalars

_POLL_SECONDS = 1.0

Logs = dict[str, Any]


def run_mode(run: Run, controller: orbit.Controller) -> Logs:
    """Runs the mode and returns the result of the last evaluation, {} if nothing was evaluated.

    The state of the run must be restored or initialized.
    """
    mode = run.request.mode
    with (
        quiet_orbit_scope(),
        local_strategy(run.strategy).scope(),
        error_message_scope(run.config),
    ):
        if mode == "eval":
            logs = evaluate_checkpoint(run, controller)
        elif mode == "continuous_eval":
            logs = evaluate_continuously(run, controller)
        else:
            logs = _train_in_mode(run, controller, mode)
        if run.request.run_post_eval and mode != "train_and_post_eval":
            logs = evaluate(run, controller)
    return logs


def quiet_orbit_scope() -> contextlib.AbstractContextManager[None]:
    """Sends Orbit's messages to the log, because standard output is for the results."""
    return orbit_log_scope(logging.getLogger("orbit").info)


def _train_in_mode(run: Run, controller: orbit.Controller, mode: str) -> Logs:
    profiler = run.trainer.profiler if run.trainer is not None else None
    with (
        run.stops.signals.installed_scope(),
        run.checkpoints.completed_saves_scope(),
        contextlib.ExitStack() as at_end,
    ):
        if profiler is not None:
            at_end.callback(profiler.stop)
        logs = train(run, controller, evaluates=mode == "train_and_eval")
        if mode == "train_and_post_eval":
            logs = evaluate(run, controller)
    run.callbacks.call("on_train_end", run)
    return logs


def train(run: Run, controller: orbit.Controller, *, evaluates: bool) -> Logs:
    """Trains to the last step: trains to the next stop, evaluates if due, saves if due.

    If training diverges, it may return to the last checkpoint and continue. Weights that are not
    finite may be detected only while they are saved, when later steps already run. Returns the
    result of the last evaluation, {} if nothing was evaluated.
    """
    logs = Logs()
    run.callbacks.call("on_train_begin", run)
    if run.step >= run.train_steps or run.stops.reason:
        reason = run.stops.reason or f"step {run.step} of {run.train_steps}"
        note(f"the run is finished: {reason}")
        return evaluate(run, controller) if evaluates else logs
    run.exit_if_requested()
    record_resume(run)
    if can_roll_back(run):
        try:
            run.checkpoints.save()  # So that the first steps can be rolled back.
        except Diverged as error:
            handle_divergence(run, error)
    finished = False
    first = run.step
    while not finished:
        phase("tracing the first step" if run.step == first else "training", minor=True)
        try:
            logs = _train_to_next_stop(run, controller, logs, evaluates=evaluates)
            finished = run.step >= run.train_steps or bool(run.stops.reason)
            if finished:
                phase("saving the last checkpoint", minor=True)
                run.checkpoints.sync()  # Raises `Diverged` if its weights are not finite.
        except Diverged as error:
            handle_divergence(run, error)
            finished = False
    if run.best is not None and run.evaluator is not None:  # Otherwise, another process has them.
        run.best.check_files(reports=False)
    return logs


def _train_to_next_stop(
    run: Run, controller: orbit.Controller, logs: Logs, *, evaluates: bool
) -> Logs:
    """Trains, evaluates if due, saves if due, and returns the result of the latest evaluation.

    Saving comes last, so that a checkpoint contains what its own evaluation changed (the state of
    early stopping), and a run that is killed in between repeats the evaluation.
    """
    plan = run.plan
    stops = run.stops
    target = stops.limit(run.step, plan.next_stop(run.step, evaluates=evaluates))
    with contextlib.suppress(StopTraining):
        controller.train(target, checkpoint_at_completion=False)
    if evaluates and (stops.agree_on_stop() or plan.should_evaluate(run.step)):
        logs = evaluate(run, controller)
    if stops.agree_on_stop():
        note(f"stopped early at step {run.step}: {stops.reason}")
    if stops.reason or run.step >= run.train_steps:
        changes = run.callbacks.call("on_last_step", run)
        if any(changes) and evaluates:
            run.records.recorded_step = run.step  # The curves have one evaluation of each step.
            logs = evaluate(run, controller)
    if stops.reason or plan.should_save(run.step):
        run.checkpoints.save()
    run.exit_if_requested()
    return logs


def evaluate(run: Run, controller: orbit.Controller) -> Logs:
    """Evaluates the current weights and returns the metrics."""
    phase(f"evaluating at step {run.step}")
    run.callbacks.call("on_evaluate_begin", run)
    with error_message_scope(run.config, VALIDATION_DATA):
        return controller.evaluate(run.validation_steps)


def evaluate_checkpoint(run: Run, controller: orbit.Controller) -> Logs:
    """Evaluates the restored checkpoint, or the weights from `init_checkpoint`.

    Writes the result to `evaluations/`. Raises RunnerError if there are no such weights.
    """
    checkpoint = run.checkpoints.started_from
    if checkpoint is None and not run.config.task.init_checkpoint:
        raise RunnerError(
            f"no intact checkpoint in {run.checkpoints.directory}\n"
            "train first (--mode=train), or specify another run directory",
            path="--model_dir",
            code="no-checkpoint",
        )
    logs = evaluate(run, controller)
    if run.is_chief and run.records.are_written:
        values = {
            "checkpoint": os.path.relpath(
                checkpoint or run.config.task.init_checkpoint, run.model_dir
            ),
            "step": run.step,
            "weights": "plain" if run.state.ema is None else "average",
            "data": run.records.data,
            "metrics": scalars(logs),
        }
        write_evaluation(run.model_dir, run.step, values)
    return logs


def evaluate_continuously(run: Run, controller: orbit.Controller) -> Logs:
    """Evaluates each new checkpoint up to that of the last step, and returns its metrics.

    Raises RunnerError if no new checkpoint appears within `trainer.continuous_eval_timeout`
    seconds.
    """
    timeout = run.config.trainer.continuous_eval_timeout
    directory = run.checkpoints.directory
    seen = None
    waiting_since = time.monotonic()
    phase(f"waiting for a checkpoint in {directory}")
    while True:
        newest = run.checkpoints.find_latest()
        if newest is not None and newest != seen:
            if not _restore(run, newest):
                continue
            logs = evaluate(run, controller)
            seen = newest
            waiting_since = time.monotonic()
            if run.stops.agree_on_stop() or 0 < run.train_steps <= run.step:
                return logs
            phase(f"waiting for a checkpoint after step {run.step}")
        elif timeout and run.workers.broadcast_from_chief(
            time.monotonic() - waiting_since > timeout
        ):
            raise RunnerError(
                f"no new checkpoint in {directory} for {timeout} s "
                "(trainer.continuous_eval_timeout)",
                code="no-checkpoint",
            )
        else:
            time.sleep(_POLL_SECONDS)


def _restore(run: Run, path: str) -> bool:
    problem = None
    try:
        run.checkpoints.check(path)
        run.checkpoints.restore(path)
        run.compare_code()
    except RunnerError as error:
        problem = error
    if run.workers.all(problem is None):
        return True
    # The training run may have deleted this checkpoint while it was being read.
    if run.checkpoints.find_latest() == path:
        raise problem or RunnerError(f"another worker cannot read {path}", code="no-checkpoint")
    return False


def build_controller(run: Run) -> orbit.Controller:
    """Returns the Orbit controller that runs the trainer and the evaluator of a run.

    It has no checkpoint manager, because `loop.py` determines the order of evaluating and saving.
    Actions are called after the callbacks. The summary managers replace the runner's own.
    """
    request = run.request
    # With one directory for both splits, Orbit would use one manager for both.
    directories = [
        str(run.model_dir / name) if run.records.are_written else None
        for name in ("train", "validation")
    ]
    lock = RunLock(run.model_dir)

    def next_loop_length(_: object) -> int:
        # Before a loop, not after one as an action would do it: the record of the last loop is then
        # already written, and an evaluation that is due at its last step is not skipped.
        assert run.trainer is not None
        return run.stops.next_loop_length(run.trainer.loop_length(run.step), run.step, run.save)

    controller = request.controller_cls(
        strategy=local_strategy(run.strategy),
        trainer=run.trainer,
        evaluator=run.evaluator,
        global_step=run.state.global_step,
        steps_per_loop=next_loop_length,
        summary_interval=run.plan.summary_interval if run.records.are_written else None,
        summary_dir=directories[0],
        eval_summary_dir=directories[1],
        summary_manager=request.summary_manager or run.records.train,
        eval_summary_manager=request.eval_summary_manager or run.records.evaluation,
        train_actions=[functools.partial(_after_loop, run, lock), *request.train_actions],
        eval_actions=[functools.partial(_after_evaluation, run, lock), *request.eval_actions],
    )
    if run.trainer is not None:
        controller.step_timer = run.trainer.timer
    return controller


def _after_loop(run: Run, lock: RunLock, logs: Logs) -> None:
    """Writes the records that ended within a loop, then checks the loop, and calls the callbacks.

    Orbit writes the record at the end of the loop after all checks have passed.
    """
    assert run.trainer is not None
    _check_directory(run, lock)
    run.records.train.write(run.trainer.earlier_records)
    run.checkpoints.raise_failure()
    check_losses(run, logs)
    run.callbacks.call("on_loop_end", run, logs)
    if run.plan.is_record(run.step):
        run.callbacks.call("on_log", run, logs)


def _after_evaluation(run: Run, lock: RunLock, logs: Logs) -> None:
    if run.trainer is not None:
        _check_directory(run, lock)
    if run.is_chief:
        warn_of_evaluation(run.step, logs)
    run.callbacks.call("on_evaluate", run, logs)


def _check_directory(run: Run, lock: RunLock) -> None:
    """Raises `RunDirectoryRemoved` soon after the run directory was removed.

    Otherwise, the next save would create it again, and the run would end as if nothing was lost.
    """
    if lock.is_removed():
        raise RunDirectoryRemoved(run.model_dir)


def train_in_loops(run: Run, step: int) -> Iterator[Logs]:
    """Trains to a step, and yields the logs of each loop; nothing else happens between loops.

    A signal ends the training without a checkpoint.
    """
    trainer = run.trainer
    assert trainer is not None
    while run.step < step:
        length = trainer.loop_length(run.step)
        length = run.stops.exit_if_requested(run.step, lambda: None, length)
        yield trainer.train(tf.constant(min(step - run.step, length), tf.int32))
