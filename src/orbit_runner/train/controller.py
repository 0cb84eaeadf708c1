"""The Orbit controller of a run: what it drives, what it is told to do after each loop."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import orbit
import orbit.controller

from orbit_runner.train.callbacks.divergence import DivergenceGuard
from orbit_runner.train.callbacks.summaries import JsonLines, Summaries, flat_scalars
from orbit_runner.train.callbacks.thread_advice import ThreadAdvice
from orbit_runner.train.loops.loop_length import LoopLength
from orbit_runner.train.loops.recorder import MAX_RECORDS
from orbit_runner.train.run import RECORDS, Session

Action = Callable[[Any], None]


def build_controller(
    session: Session,
    controller_cls: type[orbit.Controller] = orbit.Controller,
    *,
    train_actions: Sequence[Action] = (),
    eval_actions: Sequence[Action] = (),
    save_summary: bool = True,
    summary_manager: Any = None,
    eval_summary_manager: Any = None,
) -> orbit.Controller:
    """Builds the controller over a session's trainer and evaluator.

    Checkpoints are not given to it: the order of evaluating and saving is that of `loop.py`.

    Args:
        session: The run.
        controller_cls: The class of the controller.
        train_actions: Called with the output of each loop, after the runner's own.
        eval_actions: Called with the result of each evaluation, after the runner's own.
        save_summary: Whether summaries and records are written.
        summary_manager: Writes those of training, in place of the runner's.
        eval_summary_manager: Writes those of evaluation.

    Returns:
        The controller.
    """
    save_summary = save_summary and session.workers.is_chief
    in_graph = summary_manager is None and _record_in_graph(session)
    if save_summary and session.trainer is not None:
        session.records = JsonLines(session.model_dir / RECORDS)
    train_summaries = _summaries(session, "train", "train", session.plan.is_record, save_summary)
    subdir = session.config.trainer.validation_summary_subdir
    # Orbit writes both splits with one manager unless it is told of two folders.
    folders = [
        str(session.model_dir / name) if save_summary else None for name in ("train", subdir)
    ]
    controller = controller_cls(
        strategy=session.own_strategy,
        trainer=session.trainer,
        evaluator=session.evaluator,
        global_step=session.state.global_step,
        steps_per_loop=_loop_length(session, cut_at_records=not in_graph),
        summary_interval=session.plan.summary_interval if save_summary else None,
        summary_dir=folders[0],
        eval_summary_dir=folders[1],
        summary_manager=summary_manager or train_summaries,
        eval_summary_manager=eval_summary_manager
        or _summaries(session, subdir, "validation", session.is_new_evaluation, save_summary),
        train_actions=[*_own_train_actions(session, train_summaries), *train_actions],
        eval_actions=[*_own_eval_actions(session), *eval_actions],
    )
    if session.trainer is not None:
        controller.step_timer = session.trainer.timer
    return controller


def _record_in_graph(session: Session) -> bool:
    """Lets loops run on where records end, if nothing depends on the length of a loop."""
    # Workers would have to reduce their metrics together in each record. A run that goes back after
    # it diverged has to see that at the same step each time.
    if session.trainer is None or session.workers.count > 1 or session.can_go_back():
        return False
    return session.trainer.record_in_graph()


def _summaries(
    session: Session, subdir: str, split: str, is_record: Callable[[int], bool], save: bool
) -> Summaries:
    directory = session.model_dir / subdir if save else None
    lines = JsonLines(session.model_dir / RECORDS) if save else None
    return Summaries(directory, lines, split, session.state.global_step, is_record)


def _own_train_actions(session: Session, summaries: Summaries) -> list[Action]:
    trainer = session.trainer
    if trainer is None:
        return []
    actions: list[Action] = [
        lambda logs: session.observer.trained(session.step, flat_scalars(logs)),
        # Orbit writes the record at the end of a loop after all actions, if none of them raises.
        lambda logs: summaries.write(trainer.earlier_records),
        ThreadAdvice(session),
        session.prune,
    ]
    # A save beside training that failed is reported at the end of the loop, not at the next save.
    actions.append(lambda logs: session.checkpoints.raise_failure())
    if session.config.trainer.recovery_max_trials >= 0:
        guard = DivergenceGuard(session.config.trainer, session.state)
        actions.append(lambda logs: guard.check_all(trainer.earlier_records))
        actions.append(guard)
    return actions


def _own_eval_actions(session: Session) -> list[Action]:
    actions: list[Action] = [
        lambda logs: session.observer.evaluated(session.step, flat_scalars(logs))
    ]
    if session.best is not None:
        actions.append(session.best)
    if session.averages is not None:
        actions.append(session.averages)
    return actions


def _loop_length(session: Session, *, cut_at_records: bool) -> Callable[[int], int]:
    trainer = session.trainer
    length = LoopLength(
        session.config.trainer.steps_per_loop,
        session.plan,
        lambda: (0, 0.0) if trainer is None else trainer.timer.last,
        records=1 if cut_at_records else MAX_RECORDS,
    )

    def next_loop(step: int) -> int:
        # Between two loops and not after one, as an action would: then the loop's record is
        # written, and what is due at its last step (an evaluation) is not skipped.
        return session.leave_if_signalled(length(step))

    return next_loop


@contextlib.contextmanager
def quiet_orbit() -> Iterator[None]:
    """Sends Orbit's lines to the log: standard output belongs to the results."""
    log, orbit.controller._log = orbit.controller._log, logging.getLogger("orbit").info
    try:
        yield
    finally:
        orbit.controller._log = log
