"""Builds the Orbit controller of a run."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orbit
import orbit.controller
import psutil
import tensorflow as tf

from orbit_runner.run_directory.config_values import read_setting
from orbit_runner.run_directory.metric_records import AVERAGED_STEPS, SYSTEM
from orbit_runner.tf_internals import orbit_log_scope
from orbit_runner.trackers.tracking import make_tracking, writes_event_files
from orbit_runner.train.callbacks.base import Callback, CallbackList
from orbit_runner.train.callbacks.own_callbacks import (
    DirectoryCheck,
    DivergenceGuard,
    Pruning,
    RecordWriter,
    SaveErrors,
    ThreadAdvice,
)
from orbit_runner.train.callbacks.summaries import JsonLines, Summaries
from orbit_runner.train.loops.loop_pieces import LoopLength
from orbit_runner.train.loops.recorder import MAX_RECORDS
from orbit_runner.train.nonfinite.evaluation import NonFiniteEvaluations
from orbit_runner.train.rollback import can_roll_back
from orbit_runner.train.run import Run

Action = Callable[[Any], None]


def build_controller(
    run: Run,
    controller_cls: type[orbit.Controller] = orbit.Controller,
    *,
    train_actions: Sequence[Action] = (),
    eval_actions: Sequence[Action] = (),
    save_summary: bool = True,
    summary_manager: Any = None,
    eval_summary_manager: Any = None,
) -> orbit.Controller:
    """Returns the Orbit controller that runs the trainer and the evaluator of a run.

    It has no checkpoint manager, because `loop.py` determines the order of evaluating and saving.
    Actions are called after the callbacks. The summary managers replace the runner's own.
    """
    save_summary = save_summary and run.is_chief
    in_graph = summary_manager is None and _enable_records_in_graph(run)
    if save_summary and run.trainer is not None:
        run.records = JsonLines(run.directory.metrics)
    if save_summary:
        run.tracking = make_tracking(run.config.trackers)
    measures = save_summary and run.trainer is not None and run.config.trainer.system_metrics
    extra_values = SystemMetrics() if measures else dict
    train_summaries = _build_summaries(
        run,
        "train",
        "train",
        run.plan.is_record,
        save_summary,
        extra_values,
        about=lambda step: _describe_record(run, step),
    )
    subdir = run.config.trainer.validation_summary_subdir
    # With one directory for both splits, Orbit would use one manager for both.
    directories = [
        str(run.model_dir / name) if save_summary else None for name in ("train", subdir)
    ]
    run.callbacks = CallbackList([*_own_callbacks(run, train_summaries), *run.callbacks.callbacks])
    controller = controller_cls(
        strategy=run.local_strategy,
        trainer=run.trainer,
        evaluator=run.evaluator,
        global_step=run.state.global_step,
        steps_per_loop=_build_loop_length(run, cut_at_records=not in_graph),
        summary_interval=run.plan.summary_interval if save_summary else None,
        summary_dir=directories[0],
        eval_summary_dir=directories[1],
        summary_manager=summary_manager or train_summaries,
        eval_summary_manager=eval_summary_manager
        or _build_evaluation_summaries(run, subdir, save_summary),
        train_actions=[functools.partial(_call_after_loop, run), *train_actions],
        eval_actions=[lambda logs: run.callbacks.on_evaluate(run, logs), *eval_actions],
    )
    if run.trainer is not None:
        controller.step_timer = run.trainer.timer
    return controller


def _own_callbacks(run: Run, summaries: Summaries) -> list[Callback]:
    """Returns the runner's own callbacks in calling order; those of the config come after them.

    After a loop, records are written before the checks that may end the run. Orbit writes the
    record at the end of a loop, after all checks have passed.
    """
    callbacks: list[Callback | None] = []
    if run.trainer is not None:
        callbacks += [DirectoryCheck(run.model_dir), RecordWriter(summaries), ThreadAdvice()]
        if getattr(run.config.for_task.task, "pruning", None):
            callbacks.append(Pruning())
        callbacks.append(SaveErrors())
        if run.config.trainer.checks_divergence:
            callbacks.append(DivergenceGuard(run.config.trainer))
    if run.evaluator is not None:
        callbacks.append(NonFiniteEvaluations())
    callbacks += [run.best, run.averages, run.early_stop]
    return [callback for callback in callbacks if callback is not None]


def _call_after_loop(run: Run, logs: Mapping[str, Any]) -> None:
    run.heartbeat.beat(lambda: run.step)
    run.callbacks.on_loop_end(run, logs)
    if run.plan.is_record(run.step):
        run.callbacks.on_log(run, logs)


def _enable_records_in_graph(run: Run) -> bool:
    """Enables records inside loops if nothing depends on their length; returns whether it did."""
    # Workers would have to reduce their metrics together in each record. A run that may return to a
    # checkpoint must detect divergence at the same step each time.
    if run.trainer is None or run.workers.count > 1 or can_roll_back(run):
        return False
    return not run.callbacks.needs_every_record and run.trainer.enable_records_in_graph()


def _build_evaluation_summaries(run: Run, subdir: str, save: bool) -> Summaries:
    """Returns the writer of evaluations. Those of other data are no part of the run's curves."""
    if not run.other_data:
        return _build_summaries(run, subdir, "validation", run.is_new_evaluation, save)
    about = {"data": run.other_data.as_dict()}
    own_subdir = read_setting(run.model_dir, "trainer.validation_summary_subdir")
    return _build_summaries(
        run,
        "" if subdir == own_subdir else subdir,
        "evaluation",
        run.is_new_evaluation,
        save,
        about=lambda step: about,
    )


def _build_summaries(
    run: Run,
    subdir: str,
    split: str,
    is_record: Callable[[int], bool],
    save: bool,
    extra_values: Callable[[], Mapping[str, float]] = dict,
    about: Callable[[int], Mapping[str, Any]] = lambda step: {},
) -> Summaries:
    writes_events = subdir and save and writes_event_files(run.config.trackers)
    directory = run.model_dir / subdir if writes_events else None
    lines = JsonLines(run.directory.metrics) if save else None
    step = run.state.global_step
    return Summaries(directory, lines, split, step, is_record, extra_values, run.tracking, about)


def _describe_record(run: Run, step: int) -> dict[str, int]:
    """Returns how many steps a record averages over if a resume made it fewer than usual."""
    missing = 0 if run.trainer is None else run.trainer.missing_steps(step)
    return {AVERAGED_STEPS: step - run.plan.record_start(step) - missing} if missing else {}


def _build_loop_length(run: Run, *, cut_at_records: bool) -> Callable[[int], int]:
    trainer = run.trainer
    length = LoopLength(
        run.config.trainer.steps_per_loop,
        run.plan,
        lambda: (0, 0.0) if trainer is None else trainer.timer.last,
        records=1 if cut_at_records else MAX_RECORDS,
    )

    def next_loop_length(step: int) -> int:
        # Before a loop, not after one as an action would do it: the record of the last loop is then
        # already written, and an evaluation that is due at its last step is not skipped.
        return run.stops.next_loop_length(length(step), run.step, run.save, run.checkpoints.save)

    return next_loop_length


def quiet_orbit_scope() -> contextlib.AbstractContextManager[None]:
    """Sends Orbit's messages to the log, because standard output is for the results."""
    return orbit_log_scope(logging.getLogger("orbit").info)


# Over a shorter time, the share of the processor is a matter of chance.
_SHORTEST_SECONDS = 0.1
_GIB = 2.0**30


class SystemMetrics:
    """Measures the process and the machine. Records within a tenth of a second share the values."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        count = len(tf.config.list_logical_devices("GPU"))
        self._gpus = [f"GPU:{n}" for n in range(count) if _has_memory_info(f"GPU:{n}")]
        self._values: dict[str, float] = {}
        self._process.cpu_percent()  # The first call only starts the measurement.
        self._measured_at = time.monotonic()

    def __call__(self) -> dict[str, float]:
        """Returns the values by name. The share of the processor is that since the last values."""
        now = time.monotonic()
        if not self._values or now - self._measured_at >= _SHORTEST_SECONDS:
            self._values = self._measure()
            self._measured_at = now
        return self._values

    def _measure(self) -> dict[str, float]:
        found = {
            f"{SYSTEM}memory_gib": self._process.memory_info().rss / _GIB,
            f"{SYSTEM}cpu_percent": self._process.cpu_percent(),
            f"{SYSTEM}machine_memory_percent": psutil.virtual_memory().percent,
        }
        if self._gpus:
            # The bytes of tensors, not those that TensorFlow only reserves.
            used = [tf.config.experimental.get_memory_info(name) for name in self._gpus]
            found[f"{SYSTEM}gpu_memory_gib"] = max(one["current"] for one in used) / _GIB
            found[f"{SYSTEM}gpu_peak_memory_gib"] = max(one["peak"] for one in used) / _GIB
        return found


def _has_memory_info(name: str) -> bool:
    try:
        tf.config.experimental.get_memory_info(name)
    except (ValueError, tf.errors.OpError):  # Not every allocator counts.
        return False
    return True
