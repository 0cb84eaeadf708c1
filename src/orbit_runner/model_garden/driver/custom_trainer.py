"""Runs a custom trainer: its checkpoints, its records and its controller."""

from __future__ import annotations

import contextlib
import functools
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orbit
import tensorflow as tf

from orbit_runner.checkpoint.compatibility import match_variables
from orbit_runner.checkpoint.fingerprint import CheckpointContent
from orbit_runner.checkpoint.finite_check import non_finite_error, non_finite_variables
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.modes import TRAINING
from orbit_runner.config.schema.trainer import TrainerConfig
from orbit_runner.distribute.process_group import Workers
from orbit_runner.errors import RunnerError, SettingError, format_list
from orbit_runner.run_directory.metric_records import prepare_records
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.tasks.assets import assets_of
from orbit_runner.trackers.tracking import make_tracking, writes_event_files
from orbit_runner.train.callbacks.base import Callback, keeps_state
from orbit_runner.train.callbacks.interrupts import SignalAction, SignalGuard
from orbit_runner.train.callbacks.summaries import JsonLines, Summaries
from orbit_runner.train.error_messages import error_message_scope
from orbit_runner.train.memory_errors import TRAIN_DATA, VALIDATION_DATA
from orbit_runner.utils.log import note
from orbit_runner.utils.metrics import scalars

if TYPE_CHECKING:
    import tf_keras
    from official.core import base_trainer
    from official.modeling import hyperparams

    from orbit_runner.train.callbacks.base import Logs
    from orbit_runner.train.controller import Action


class TrainerCheckpointManager(tf.train.CheckpointManager):
    """The checkpoint manager of a custom trainer.

    `tf.train.CheckpointManager` restores what matches without reporting the rest, and saves NaN
    weights. This class reports the rest and refuses to save such weights.
    """

    def __init__(
        self,
        checkpoint: tf.train.Checkpoint,
        *,
        run_directory: str,  # all workers restore from it
        is_strict: bool,  # whether a checkpoint that fits only in part is an error, not a note
        step_counter: tf.Variable,
        **kwargs: Any,
    ) -> None:
        super().__init__(checkpoint, step_counter=step_counter, **kwargs)
        self._global_step = step_counter
        self._run_directory = run_directory
        self._is_strict = is_strict
        self._last_saved_step: int | None = None

    def save(
        self,
        checkpoint_number: int | tf.Variable | tf.Tensor | None = None,
        check_interval: bool = True,
        options: tf.train.CheckpointOptions | None = None,
    ) -> str | None:
        """Saves a checkpoint and returns its path, or None if no checkpoint is due.

        Raises Diverged if the weights are not finite.
        """
        step = self._current_step()
        last = self._last_saved_step
        is_due = last is None or step >= last + (self.checkpoint_interval or 0)
        model = getattr(self.checkpoint, "model", None)
        if model is not None and (is_due or not check_interval):
            non_finite = non_finite_variables(model.trainable_variables)
            if non_finite:
                raise non_finite_error(step, non_finite)
        path: str | None = super().save(checkpoint_number, check_interval, options)
        if path is not None:
            self._last_saved_step = step
        return path

    def _current_step(self) -> int:
        return int(orbit.utils.get_value(self._global_step))

    def restore_or_initialize(self) -> str | None:
        """Restores the latest checkpoint and returns its path, or initializes the model.

        Returns None if there was no checkpoint. Raises RunnerError if the checkpoint does not match
        and `is_strict` is true.
        """
        checkpoint = tf.train.latest_checkpoint(self._run_directory)
        if checkpoint is not None:
            self._check(checkpoint)
        path: str | None = super().restore_or_initialize()
        if checkpoint is not None:
            self._last_saved_step = self._current_step()
            note(f"restored step {self._last_saved_step} from {checkpoint}")
        return path

    def _check(self, path: str) -> None:
        items = dict(tf.train.TrackableView.children(self.checkpoint))
        content = CheckpointContent(path)
        match = match_variables(items, content, allow_missing_slots=True)
        # Slot variables are created at the first update, so only the checkpoint may have them.
        left = [*match.missing, *(line for line in match.unused if line.startswith("model."))]
        if not left:
            return
        if self._is_strict:
            raise RunnerError(
                f"the checkpoint {path} does not fit this experiment "
                f"(variables that fit: {match.format_counts() or 'none'}):\n{format_list(left)}\n"
                "use another --model_dir, or the config that created the checkpoint",
                code="checkpoint-mismatch",
            )
        note(f"restored {match.format_counts()} from {path}; not restored:\n{format_list(left)}")


def build_checkpoint_manager(
    trainer: base_trainer.Trainer,
    settings: TrainerConfig,
    model_dir: str,
    workers: Workers,
    *,
    is_strict: bool,
) -> TrainerCheckpointManager:
    """Returns the checkpoint manager of a custom trainer."""
    return TrainerCheckpointManager(
        trainer.checkpoint,
        run_directory=model_dir,
        is_strict=is_strict,
        # All workers save, because reading some variables involves all of them. Only the chief
        # keeps the checkpoint.
        directory=model_dir if workers.is_chief else tempfile.mkdtemp(),
        max_to_keep=settings.max_to_keep if workers.is_chief else 1,
        step_counter=trainer.global_step,
        checkpoint_interval=settings.checkpoint_interval,
        init_fn=functools.partial(_restore_shared, trainer, model_dir),
    )


def _restore_shared(trainer: base_trainer.Trainer, model_dir: str) -> None:
    """Restores the chief's latest checkpoint, or initializes the trainer if there is no checkpoint.

    A worker's own directory is new at each start.
    """
    newest = tf.train.latest_checkpoint(model_dir)
    if newest is None:
        trainer.initialize()
    else:
        trainer.checkpoint.restore(newest)


def build_summary_managers(run: CustomTrainerRun, given: Mapping[str, object]) -> dict[str, object]:
    """Returns the writers of summaries and records by the names of Orbit's arguments.

    Writers that the caller passed, in `given`, are kept. Only the chief writes.
    """
    directory = run.model_dir
    settings = run.config.trainer
    step = run.global_step
    lines = JsonLines(RunDirectory(directory).metrics) if run.is_chief else None
    interval = settings.summary_interval
    subdir = settings.validation_summary_subdir
    writes_events = run.is_chief and writes_event_files(run.config.trackers)
    managers = {
        "summary_manager": Summaries(
            directory / "train" if writes_events else None,
            lines,
            "train",
            step,
            lambda step: step % interval == 0,
        ),
        "eval_summary_manager": Summaries(
            directory / subdir if writes_events else None, lines, "validation", step
        ),
    }
    return {name: given[name] or managers[name] for name in managers}


class CustomTrainerRun:
    """The object that callbacks receive instead of a `Run` if a custom trainer trains."""

    best = None
    layer_groups = ()
    steps_per_epoch = examples_per_step = 0.0  # unknown

    def __init__(
        self,
        trainer: base_trainer.Trainer,
        config: ExperimentConfig,
        model_dir: Path,
        strategy: tf.distribute.Strategy,
        train_steps: int,
        callbacks: Any,
        task: object,
    ) -> None:
        self._trainer = trainer
        self.config = config
        self.model_dir = model_dir
        self._task = task
        self.strategy = strategy
        self.train_steps = train_steps
        self.callbacks = callbacks
        self.is_chief = Workers(strategy).is_chief

    def begin(self, *, trains: bool) -> None:
        """Prepares the records if the run trains, and calls `on_run_begin` of the callbacks."""
        if trains and self.is_chief:
            prepare_records(RunDirectory(self.model_dir), self.step, note, keep_metrics=False)
            assets = assets_of(self._task)
            if assets is not None:
                assets.write()
        self.callbacks.on_run_begin(self)

    @property
    def global_step(self) -> tf.Variable:
        """The global step, an int64 scalar variable."""
        return self._trainer.global_step

    @property
    def step(self) -> int:
        """The value of the global step."""
        return int(self.global_step.numpy())

    @property
    def model(self) -> tf_keras.Model:
        """The model."""
        return self._trainer.model

    def inexact_reasons(self) -> list[str]:
        """Returns why the same config may not give the same weights again."""
        return ["a custom trainer creates its own batches and random numbers"]


class EventReporter:
    """Calls the callbacks after the loops and evaluations of a custom trainer."""

    def __init__(self, run: CustomTrainerRun) -> None:
        self._run = run
        self.last: dict[str, Any] = {}  # the result of the last evaluation
        self.restart()

    def restart(self) -> None:
        """Restarts the time measurement, for the next loop."""
        self._step = self._run.step
        self._time = time.perf_counter()

    def report_loop(self, logs: Logs) -> None:
        """Calls `on_loop_end` of the callbacks with the output of a loop and its speed."""
        steps = self._run.step - self._step
        seconds = time.perf_counter() - self._time
        speed = {"steps_per_second": steps / seconds if seconds else 0.0}
        self._run.callbacks.on_loop_end(self._run, {**scalars(logs), **speed})
        self.restart()

    def report_evaluation(self, logs: Logs) -> None:
        """Calls `on_evaluate` of the callbacks with the result of an evaluation."""
        self.last = dict(logs)
        self._run.callbacks.on_evaluate(self._run, scalars(logs))
        self.restart()


def build_garden_controller(
    run: CustomTrainerRun,
    params: ExperimentConfig | hyperparams.Config,
    trainer: base_trainer.Trainer | None,
    evaluator: base_trainer.Trainer | None,
    controller_cls: type[orbit.Controller],
    reporter: EventReporter,
    *,
    manager: tf.train.CheckpointManager | None,
    signals: SignalGuard,
    asynchronous: bool,
    save_summary: bool,
    train_actions: Sequence[Action],
    eval_actions: Sequence[Action],
    summary_manager: orbit.utils.SummaryManagerInterface | None,
    eval_summary_manager: orbit.utils.SummaryManagerInterface | None,
) -> orbit.Controller:
    """Returns the controller of a custom trainer, which has restored the latest checkpoint.

    `trainer` is None in modes that only evaluate. `manager` is None if the trainer has no
    checkpoint.
    """
    from official.core import actions

    check_custom_trainer(run.config.trainer)
    model_dir = run.model_dir
    leave = SignalAction(signals, Workers(run.strategy), manager, run.global_step)
    own_train = [reporter.report_loop, *train_actions, leave]
    own_eval = [reporter.report_evaluation, *eval_actions]
    if trainer:
        own_train += actions.get_train_actions(
            params, trainer, str(model_dir), checkpoint_manager=manager
        )
    if evaluator:
        own_eval += actions.get_eval_actions(params, evaluator, str(model_dir))
    settings = params.trainer
    if trainer and settings.train_steps < 1:
        raise SettingError(
            "trainer.train_steps",
            f"got {settings.train_steps}; a custom trainer requires a number of steps and "
            "does not support trainer.train_epochs",
            code="not-supported",
        )
    return controller_cls(
        strategy=run.strategy,
        trainer=trainer,
        evaluator=evaluator,
        global_step=run.global_step,
        steps_per_loop=_require_int(settings, "steps_per_loop"),
        checkpoint_manager=manager,
        enable_async_checkpointing=asynchronous,
        summary_dir=str(model_dir / "train") if save_summary else None,
        eval_summary_dir=(
            str(model_dir / settings.validation_summary_subdir) if save_summary else None
        ),
        summary_interval=settings.summary_interval if save_summary else None,
        train_actions=own_train,
        eval_actions=own_eval,
        summary_manager=summary_manager,
        eval_summary_manager=eval_summary_manager,
    )


def run_custom_trainer(
    run: CustomTrainerRun,
    controller: orbit.Controller,
    settings: TrainerConfig | hyperparams.Config,
    mode: str,
    reporter: EventReporter | None,
    signals: SignalGuard,
    *,
    evaluates_at_end: bool,
) -> dict[str, Any]:
    """Trains, evaluates, or does both, and calls the callbacks.

    `settings` is the section `trainer` of a config of Model Garden's class. `reporter` is None if
    the controller was built without one.

    Returns the result of the last evaluation, {} if there was no evaluation.
    """
    trains = mode in TRAINING
    if trains:
        run.callbacks.on_train_begin(run)
    if reporter is not None:
        reporter.restart()
    guard = signals.installed_scope() if trains else contextlib.nullcontext()
    errors = error_message_scope(
        run.config,
        TRAIN_DATA if trains else VALIDATION_DATA,
        replicas=run.strategy.num_replicas_in_sync,
    )
    with run.strategy.scope(), errors, guard:
        _run_mode(run, controller, settings, mode)
        logs = controller.evaluate(steps=settings.validation_steps) if evaluates_at_end else {}
    if trains:
        run.callbacks.on_train_end(run)
    return logs or (reporter.last if reporter is not None else {})


def _run_mode(
    run: CustomTrainerRun,
    controller: orbit.Controller,
    settings: TrainerConfig | hyperparams.Config,
    mode: str,
) -> None:
    steps = settings.validation_steps
    if mode == "train_and_eval":
        controller.train_and_evaluate(
            train_steps=settings.train_steps,
            eval_steps=steps,
            eval_interval=settings.validation_interval,
        )
    elif mode == "eval":
        controller.evaluate(steps=steps)
    elif mode == "continuous_eval":
        controller.evaluate_continuously(
            steps=steps,
            timeout=settings.continuous_eval_timeout,
            timeout_fn=lambda: run.step >= settings.train_steps,
        )
    else:
        controller.train(steps=settings.train_steps)


def _require_int(settings: TrainerConfig | hyperparams.Config, name: str) -> int:
    value = getattr(settings, name)
    if isinstance(value, str):
        raise SettingError(
            f"trainer.{name}",
            f"got {value!r}; a custom trainer requires a number of steps",
            code="not-supported",
        )
    return int(value)


# Settings that only this runner's own loops, checkpoint manager and best checkpoints implement.
LOOP_SETTINGS = ("max_time", "checkpoint_time_interval")
CHECKPOINT_MANAGER_SETTINGS = ("keep_checkpoint_interval", "keep_checkpoint_time_interval")
BEST_CHECKPOINT_SETTINGS = ("best_checkpoints_to_keep",)


def reject_settings(config: ExperimentConfig, names: Sequence[str], part: str) -> None:
    """Raises `SettingError` for a setting of the trainer that a custom part does not implement."""
    for name in names:
        if getattr(config.trainer, name) != getattr(TrainerConfig, name):
            raise SettingError(
                f"trainer.{name}", f"is not supported with a custom {part}", code="not-supported"
            )


def check_custom_loop(
    config: ExperimentConfig,
    callbacks: Sequence[Callback],
    *,
    stop_at_step: int | None,
    has_own_trainer: bool,
) -> None:
    """Raises an error if something was requested that only this runner's own loops support.

    `has_own_trainer` is whether only the controller is custom, and the trainer is this runner's.
    """
    stateful = [callback for callback in callbacks if keeps_state(callback)]
    if config.callbacks or stateful or (has_own_trainer and callbacks):
        raise SettingError(
            "callbacks",
            "a custom trainer or controller does not call them or save their state\n"
            "use `train_actions` and `eval_actions` instead",
            code="not-supported",
        )
    if make_tracking(config.trackers):
        raise SettingError(
            "trackers",
            "a custom trainer or controller passes records only to tensorboard\n"
            "remove the others, and use `train_actions` and `eval_actions` instead",
            code="not-supported",
        )
    if stop_at_step is not None:
        raise RunnerError(
            "stop_at_step: is not supported with a custom controller", code="not-supported"
        )
    reject_settings(config, LOOP_SETTINGS, "trainer or controller")
    if not has_own_trainer:
        reject_settings(
            config, (*CHECKPOINT_MANAGER_SETTINGS, *BEST_CHECKPOINT_SETTINGS), "trainer"
        )


def check_custom_trainer(settings: TrainerConfig) -> None:
    """Raises `SettingError` for a setting of steps that only this runner's trainer takes."""
    for name, is_set in (
        ("fine_tuning", settings.fine_tuning is not None),
        ("skip_steps", bool(settings.skip_steps)),
        ("on_nonfinite", settings.on_nonfinite == "skip"),
    ):
        if is_set:
            reason = "is not supported by custom trainers; remove it"
            raise SettingError(f"trainer.{name}", reason, code="not-supported")
