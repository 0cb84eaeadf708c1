"""Builds the Orbit controller of a run."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import orbit

from orbit_runner.distribute.process_group import local_strategy
from orbit_runner.run_directory.run_lock import RunDirectoryRemoved, RunLock
from orbit_runner.tf_internals import orbit_log_scope
from orbit_runner.train.divergence import check_losses, warn_of_evaluation
from orbit_runner.train.loops.loop_pieces import LoopLength
from orbit_runner.train.loops.recorder import MAX_RECORDS
from orbit_runner.train.run import Run

if TYPE_CHECKING:
    from orbit_runner.train.callbacks.base import Logs


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
    controller = request.controller_cls(
        strategy=local_strategy(run.strategy),
        trainer=run.trainer,
        evaluator=run.evaluator,
        global_step=run.state.global_step,
        steps_per_loop=_build_loop_length(run),
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


def _build_loop_length(run: Run) -> Callable[[int], int]:
    trainer = run.trainer
    length = LoopLength(
        run.config.trainer.steps_per_loop,
        run.plan,
        lambda: (0, 0.0) if trainer is None else trainer.timer.last,
        records=MAX_RECORDS if trainer is not None and trainer.records_in_graph else 1,
    )

    def next_loop_length(step: int) -> int:
        # Before a loop, not after one as an action would do it: the record of the last loop is then
        # already written, and an evaluation that is due at its last step is not skipped.
        return run.stops.next_loop_length(length(step), run.step, run.save)

    return next_loop_length


def quiet_orbit_scope() -> contextlib.AbstractContextManager[None]:
    """Sends Orbit's messages to the log, because standard output is for the results."""
    return orbit_log_scope(logging.getLogger("orbit").info)
