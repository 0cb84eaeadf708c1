"""`OrbitExperimentRunner`: a run whose parts a subclass can replace, as in Model Garden."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orbit
import tensorflow as tf
import tf_keras

from orbit_runner.config.schedule_length import follow_run
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.modes import TRAINING, check_mode
from orbit_runner.config.schema.runtime import LOGICAL_REPLICAS, RuntimeConfig
from orbit_runner.determinism.numerics import seed_everything
from orbit_runner.distribute.parameter_server import local_strategy
from orbit_runner.distribute.process_group import Workers
from orbit_runner.errors import RunnerError, SettingError
from orbit_runner.model_garden.driver import custom_trainer
from orbit_runner.model_garden.driver.custom_trainer import (
    BEST_CHECKPOINT_SETTINGS,
    CHECKPOINT_MANAGER_SETTINGS,
    check_custom_loop,
    reject_settings,
)
from orbit_runner.model_garden.driver.params import to_driver, to_runner_config
from orbit_runner.model_garden.driver.trainer_facade import (
    ExporterCallback,
    GardenCheckpoints,
    GardenTrainer,
    ManagedCheckpoints,
)
from orbit_runner.run_directory.run_lock import RunLock
from orbit_runner.serving.export_at_end import export_at_end, exports_at_end
from orbit_runner.storage.paths import is_remote
from orbit_runner.tasks.multitask import EvalTask
from orbit_runner.train import loop
from orbit_runner.train.callbacks.base import Callback, CallbackList
from orbit_runner.train.callbacks.interrupts import SignalGuard
from orbit_runner.train.callbacks.tracking import tracking_scope
from orbit_runner.train.controller import Action, build_controller, quiet_orbit_scope
from orbit_runner.train.error_messages import error_message_scope
from orbit_runner.train.run import Run
from orbit_runner.train.run_builder import build_run
from orbit_runner.train.run_scope import run_scope
from orbit_runner.utils.log import LOGGER, PlainMessages, log_scope, phase

if TYPE_CHECKING:
    from official.core import base_task, base_trainer
    from official.modeling import hyperparams
    from official.modeling.multitask import multitask


class OrbitExperimentRunner:
    """Runs an experiment, with the constructor, properties and methods of Model Garden's class.

    A subclass can build some of the parts itself by overriding `_build_trainer`,
    `_maybe_build_checkpoint_manager`, `_build_controller` or `_build_best_checkpoint_exporter`.
    This runner builds the others. A custom trainer, built there or passed as `trainer`, is run by
    Orbit's controller with checkpoints in `model_dir`, as in Model Garden. A custom checkpoint
    manager or exporter is used in this runner's own loops.
    """

    def __init__(
        self,
        distribution_strategy: tf.distribute.Strategy | None,
        task: base_task.Task | multitask.MultiTask,
        mode: str,
        params: ExperimentConfig | hyperparams.Config,
        model_dir: str,
        run_post_eval: bool = False,
        save_summary: bool = True,
        train_actions: Sequence[Action] | None = None,
        eval_actions: Sequence[Action] | None = None,
        trainer: base_trainer.Trainer | None = None,
        controller_cls: type[orbit.Controller] = orbit.Controller,
        summary_manager: orbit.utils.SummaryManagerInterface | None = None,
        eval_summary_manager: orbit.utils.SummaryManagerInterface | None = None,
        enable_async_checkpointing: bool = False,
        *,
        eval_tasks: dict[str, EvalTask] | None = None,
        callbacks: Sequence[Callback] = (),
        stop_at_step: int | None = None,
        started: float | None = None,
        resume: str = "same",
    ) -> None:
        """Builds the parts and restores the latest checkpoint if there is one.

        Args:
            distribution_strategy: The strategy. If None, the strategy of the current scope.
            task: The task to train or evaluate.
            mode: One of `orbit_runner.config.schema.modes.MODES`.
            params: The experiment config, of Model Garden's class or of this runner.
            model_dir: The run directory. A run with a checkpoint is resumed.
            run_post_eval: Whether to evaluate once more at the end.
            save_summary: Whether to write summaries and records.
            train_actions: Functions called with the output of each training loop.
            eval_actions: Functions called with the result of each evaluation.
            trainer: A custom `base_trainer.Trainer`, created in the strategy's scope.
            controller_cls: The class of the Orbit controller.
            summary_manager: Writes the summaries of training instead of the runner's own.
            eval_summary_manager: Writes the summaries of evaluation instead of the runner's own.
            enable_async_checkpointing: Whether to save checkpoints while training continues.
            eval_tasks: The evaluation tasks by name. If None, those of the experiment.
            callbacks: Callbacks that are called after those that the config names.
            stop_at_step: The step at which to save and raise `StoppedAtStep`. If None, training
                runs to its last step.
            started: When the run started, as `time.monotonic()`: `trainer.max_time` counts from
                then. If None, it counts from now.
            resume: `same`: resume only if all settings that affect the weights are the same.
                `override`: always resume.

        Raises:
            RunnerError: If the experiment cannot run as configured, or another process trains in
                the run directory.
        """
        check_mode(mode)
        if model_dir is None:
            raise RunnerError(
                "is not set; set it to the run directory", path="--model_dir", code="not-set"
            )
        self.strategy = distribution_strategy or tf.distribute.get_strategy()
        self._params = params
        self._model_dir = str(model_dir)
        self._mode = mode
        self._config: ExperimentConfig = to_runner_config(params)
        self._run_post_eval = run_post_eval
        self._save_summary = save_summary
        self._summary_manager = summary_manager
        self._eval_summary_manager = eval_summary_manager
        self._asynchronous = enable_async_checkpointing
        self._task = task
        self._eval_tasks = eval_tasks
        self._callbacks = tuple(callbacks)
        self._stop_at_step = stop_at_step
        self._started = started
        self._resume = resume
        self._run: Run | None = None
        self._own_controller: orbit.Controller | None = None
        self._event_reporter: custom_trainer.EventReporter | None = None
        saves = self._config.trainer.preemption_on_demand_checkpoint
        self._signals = SignalGuard(on_terminate=saves, preemption=self._config.runtime.preemption)
        with contextlib.ExitStack() as held_scopes:
            if is_remote(self._model_dir):
                # Few runs need it, and importing it takes 15 ms.
                from orbit_runner.run_directory.remote_runs import remote_run_scope

                remote = remote_run_scope(self._model_dir, mode, params, self.strategy)
                self._model_dir = str(held_scopes.enter_context(remote))
            if mode in TRAINING and Workers(self.strategy).is_chief:
                held_scopes.enter_context(RunLock(self._model_dir))
            scope = run_scope(self._config, self.strategy, mode, self._model_dir)
            with scope, self._notes_scope():
                self._build(
                    task,
                    trainer,
                    save_summary=save_summary,
                    train_actions=train_actions,
                    eval_actions=eval_actions,
                    controller_cls=controller_cls,
                    enable_async_checkpointing=enable_async_checkpointing,
                )
            self._held_scopes = held_scopes.pop_all()

    def _build(
        self,
        task: base_task.Task | multitask.MultiTask,
        trainer: base_trainer.Trainer | None,
        **controller: Any,
    ) -> None:
        trains = "train" in self._mode
        evaluates = "eval" in self._mode or self._run_post_eval
        self._trainer = trainer or self._build_trainer(task, train=trains, evaluate=evaluates)
        self._checkpoint_manager = self._maybe_build_checkpoint_manager()
        self._use_custom_manager()
        self._controller = self._build_controller(
            trainer=self._trainer if trains else None, evaluator=self._trainer, **controller
        )
        if self._controller is not self._own_controller:
            check_custom_loop(
                self._config,
                self._callbacks,
                stop_at_step=self._stop_at_step,
                has_own_trainer=self._run is not None,
            )
        if self._controller is self._own_controller and self._run is not None:
            self._run.restore_or_initialize()
        elif self._run is None:
            self._custom_trainer_run.begin(trains=trains)

    @property
    def params(self) -> ExperimentConfig | hyperparams.Config:
        """The experiment config that was passed to the constructor."""
        return self._params

    @property
    def model_dir(self) -> str:
        """The run directory."""
        return self._model_dir

    @property
    def trainer(self) -> base_trainer.Trainer | GardenTrainer:
        """The trainer, which also evaluates."""
        return self._trainer

    @property
    def checkpoint_manager(self) -> tf.train.CheckpointManager | None:
        """The checkpoint manager, or None if a custom trainer has no checkpoint."""
        return self._checkpoint_manager

    @property
    def controller(self) -> orbit.Controller:
        """The Orbit controller."""
        return self._controller

    @property
    def _is_from_driver(self) -> bool:
        """Whether a driver passed a config of Model Garden's class."""
        return not isinstance(self._params, ExperimentConfig)

    @property
    def _garden_params(self) -> ExperimentConfig | hyperparams.Config:
        """The experiment config in the form that parts of Model Garden take."""
        if self._is_from_driver:
            return self._params
        if not self._params.is_official:
            # Only the runner's own trainer converts epochs to steps.
            return follow_run(self._params, self._params.trainer.train_steps)
        return to_driver(self._params)

    def _build_trainer(
        self, task: base_task.Task | multitask.MultiTask, train: bool, evaluate: bool
    ) -> base_trainer.Trainer | GardenTrainer:
        """Returns a trainer with the attributes of Model Garden's."""
        if gin_sets_trainer():
            return build_gin_trainer(
                self._garden_params,
                self._config.runtime,
                self.strategy,
                task,
                self._build_best_checkpoint_exporter,
                train=train,
                evaluate=evaluate,
            )
        exporter = None
        best = None
        if self._overrides("_build_best_checkpoint_exporter"):
            reject_settings(
                self._config, BEST_CHECKPOINT_SETTINGS, "exporter of the best checkpoint"
            )
            exporter = self._build_best_checkpoint_exporter()
            if exporter is not None:
                best = ExporterCallback(exporter, lambda: self.trainer.checkpoint)
        self._run = build_run(
            self._config,
            task,
            self.strategy,
            Path(self.model_dir),
            trains=train,
            evaluates=evaluate,
            asynchronous=self._asynchronous,
            eval_tasks=self._eval_tasks,
            callbacks=self._callbacks,
            best=best,
            save_summary=self._save_summary,
            # A custom controller may write the record at the end of each of its loops.
            records_in_graph=self._summary_manager is None
            and not self._overrides("_build_controller"),
            stop_at_step=self._stop_at_step,
            started=self._started,
            resume=self._resume,
        )
        return GardenTrainer(self._run, self.params, exporter)

    def _overrides(self, method: str) -> bool:
        """Returns whether a subclass overrides a method."""
        return getattr(type(self), method) is not getattr(OrbitExperimentRunner, method)

    def _build_best_checkpoint_exporter(self) -> Any:
        """Returns an object with the method `maybe_export_checkpoint`, or None to export nothing.

        A custom trainer uses it. This runner's trainer saves the best checkpoint itself, unless a
        subclass overrides this method.
        """
        from official.core import train_utils

        return train_utils.maybe_create_best_ckpt_exporter(self._garden_params, self.model_dir)

    def _maybe_build_checkpoint_manager(self) -> tf.train.CheckpointManager | None:
        """Returns an object with the methods of `tf.train.CheckpointManager`.

        None is allowed only with a custom trainer.
        """
        if isinstance(self.trainer, GardenTrainer):
            return GardenCheckpoints(self.trainer.run, self.trainer.checkpoint)
        if not self.trainer.checkpoint:
            return None
        return custom_trainer.build_checkpoint_manager(
            self.trainer,
            self._config.trainer,
            self.model_dir,
            Workers(self.strategy),
            is_strict=not self._is_from_driver,
        )

    def _build_controller(
        self,
        trainer: base_trainer.Trainer | GardenTrainer | None,
        evaluator: base_trainer.Trainer | GardenTrainer | None,
        save_summary: bool = True,
        train_actions: Sequence[Action] | None = None,
        eval_actions: Sequence[Action] | None = None,
        controller_cls: type[orbit.Controller] = orbit.Controller,
        enable_async_checkpointing: bool = False,
    ) -> orbit.Controller:
        """Returns the Orbit controller.

        `trainer` is None in modes that only evaluate. The other arguments are those of the
        constructor.
        """
        common: dict[str, Any] = {
            "save_summary": save_summary,
            "train_actions": train_actions or (),
            "eval_actions": eval_actions or (),
            "summary_manager": self._summary_manager,
            "eval_summary_manager": self._eval_summary_manager,
        }
        if isinstance(self.trainer, GardenTrainer):
            self._own_controller = build_controller(self.trainer.run, controller_cls, **common)
            return self._own_controller
        if save_summary and not self._is_from_driver:
            common |= custom_trainer.build_summary_managers(self._custom_trainer_run, common)
        self._event_reporter = custom_trainer.EventReporter(self._custom_trainer_run)
        return custom_trainer.build_garden_controller(
            self._custom_trainer_run,
            self._garden_params,
            trainer,
            evaluator,
            controller_cls,
            self._event_reporter,
            manager=self.checkpoint_manager,
            signals=self._signals,
            asynchronous=enable_async_checkpointing,
            **common,
        )

    def run(self) -> tuple[tf_keras.Model, dict[str, Any]]:
        """Trains, evaluates, or does both, depending on the mode.

        Returns:
            The model and the result of the last evaluation, {} if there was no evaluation. If
            `params` is a config of Model Garden's class, the result is {} unless an evaluation at
            the end was requested.

        Raises:
            RunnerError: If the experiment cannot run as configured.
            Diverged: If the loss diverged.
            Interrupted: If a signal ended the run, after a checkpoint was saved.
        """
        scope = run_scope(self._config, self.strategy, self._mode, self._model_dir)
        with self._held_scopes, scope, self._output_scope(), self._notes_scope():
            if self._run is not None and self._controller is self._own_controller:
                logs = self._run_own_loops(self._run)
            else:
                logs = custom_trainer.run_custom_trainer(
                    self._custom_trainer_run,
                    self.controller,
                    self._garden_params.trainer,
                    self._mode,
                    self._event_reporter,
                    self._signals,
                    evaluates_at_end=self._evaluates_at_end,
                )
        returns_logs = self._evaluates_at_end or not self._is_from_driver
        return self.trainer.model, logs if returns_logs else {}

    @functools.cached_property
    def _custom_trainer_run(self) -> custom_trainer.CustomTrainerRun:
        """The object that callbacks receive instead of a `Run` if a custom trainer trains."""
        return custom_trainer.CustomTrainerRun(
            self.trainer,
            self._config,
            Path(self.model_dir),
            self.strategy,
            self._garden_params.trainer.train_steps,
            CallbackList(self._callbacks),
            self._task,
        )

    def _notes_scope(self) -> contextlib.AbstractContextManager[None]:
        """Returns a scope that prints notes, as Orbit does, if a driver has no handler for them."""
        prints = self._is_from_driver and not LOGGER.handlers
        return log_scope(PlainMessages(print)) if prints else contextlib.nullcontext()

    def _output_scope(self) -> contextlib.AbstractContextManager[None]:
        # Drivers control their own standard output and expect Orbit's messages there.
        return contextlib.nullcontext() if self._is_from_driver else quiet_orbit_scope()

    @property
    def _evaluates_at_end(self) -> bool:
        return self._run_post_eval or self._mode == "train_and_post_eval"

    def _run_own_loops(self, run: Run) -> dict[str, Any]:
        exports = exports_at_end(self._config, run.task, self._mode)
        with tracking_scope(run, self._mode):
            replicas = run.strategy.num_replicas_in_sync
            errors = error_message_scope(run.config, replicas=replicas, step=lambda: run.step)
            with local_strategy(run.strategy).scope(), errors:
                if self._mode == "eval" and self._evaluates_new_weights(run):
                    logs = loop.evaluate(run, self.controller)
                else:
                    logs = loop.run_mode(run, self.controller, self._mode)
                evaluates = self._run_post_eval and self._mode != "train_and_post_eval"
                if evaluates and not run.stopped_by_time:
                    logs = loop.evaluate(run, self.controller)
            if exports and not run.stopped_by_time:
                export_at_end(run, self.trainer.to_model_garden_logs(logs))
        return self.trainer.to_model_garden_logs(logs)

    def _evaluates_new_weights(self, run: Run) -> bool:
        """Returns whether to evaluate untrained weights, as Model Garden does, and warns if so."""
        restored = run.checkpoints.started_from or run.config.task.init_checkpoint
        if restored or not self._is_from_driver:
            return False
        logging.getLogger("absl").warning(
            "no checkpoint in %s: evaluating untrained weights", self.model_dir
        )
        return True

    def _use_custom_manager(self) -> None:
        """Replaces the runner's checkpoints with a checkpoint manager that a subclass built."""
        manager = self._checkpoint_manager
        run = self._run
        if run is not None and not isinstance(manager, GardenCheckpoints):
            if manager is None:
                raise RunnerError(
                    "_maybe_build_checkpoint_manager returned None, but this runner needs one\n"
                    "return super()._maybe_build_checkpoint_manager() or a custom manager",
                    code="missing-method",
                )
            reject_settings(self._config, CHECKPOINT_MANAGER_SETTINGS, "checkpoint manager")
            checkpoints = ManagedCheckpoints(run, manager, asynchronous=self._asynchronous)
            self._run = dataclasses.replace(run, checkpoints=checkpoints)
            self._trainer.run = self._run


def gin_sets_trainer() -> bool:
    """Returns whether a gin binding sets the class of the trainer."""
    gin = sys.modules.get("gin")
    if gin is None:
        return False
    try:
        gin.query_parameter("create_trainer.trainer_cls")
    except ValueError:
        return False
    return True


def build_gin_trainer(
    params: ExperimentConfig | hyperparams.Config,
    runtime: RuntimeConfig,
    strategy: tf.distribute.Strategy,
    task: base_task.Task,
    build_exporter: Callable[[], Any],
    *,
    train: bool,
    evaluate: bool,
) -> base_trainer.Trainer:
    """Returns a trainer of the class that a gin binding sets, created in the strategy's scope.

    `params` is a config of Model Garden's class. `build_exporter` is called in the scope, and
    returns the exporter of the best checkpoint. Raises `SettingError` if the run has logical
    replicas.
    """
    from official.core import train_utils

    if runtime.logical_replicas:
        raise SettingError(
            LOGICAL_REPLICAS,
            "is not supported with a custom trainer; omit it",
            code="not-supported",
        )
    phase("building the model")
    # As for this runner's own trainer, because deterministic random ops fail without a seed.
    seed_everything(runtime.seed, keep_objects=True)
    with strategy.scope():
        return train_utils.create_trainer(
            params, task, train=train, evaluate=evaluate, checkpoint_exporter=build_exporter()
        )
