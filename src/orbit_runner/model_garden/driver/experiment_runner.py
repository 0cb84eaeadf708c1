"""`OrbitExperimentRunner`: a run in parts that a subclass may make itself, as in Model Garden."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orbit
import tensorflow as tf
import tf_keras

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.modes import TRAINING, check_mode
from orbit_runner.determinism.numerics import seed_everything
from orbit_runner.distribute.process_group import Workers
from orbit_runner.errors import RunnerError, SettingError
from orbit_runner.model_garden.driver.trainer_facade import (
    GardenCheckpoints,
    GardenTrainer,
    ManagedCheckpoints,
)
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.run_directory.remote.library import remote_run_scope
from orbit_runner.run_directory.run_lock import RunLock
from orbit_runner.serving.export_at_end import check_exportable, export_at_end
from orbit_runner.storage.paths import is_remote
from orbit_runner.tasks.multitask import Evaluated
from orbit_runner.train import loop
from orbit_runner.train.callbacks.base import Callback
from orbit_runner.train.callbacks.callback_list import CallbackList, keeps_state
from orbit_runner.train.callbacks.interrupts import SignalAction, SignalGuard
from orbit_runner.train.controller import Action, build_controller, quiet_orbit
from orbit_runner.train.error_messages import error_message_scope
from orbit_runner.train.run import Run
from orbit_runner.train.run_scope import run_scope
from orbit_runner.utils.files import cut_records
from orbit_runner.utils.log import LOGGER, log_scope, phase


class OrbitExperimentRunner:
    """Runs an experiment; constructor, properties and override points are Model Garden's.

    A subclass may make some of the parts itself: `_build_trainer`,
    `_maybe_build_checkpoint_manager`, `_build_controller`, `_build_best_checkpoint_exporter`. What
    it makes is used; what it leaves alone is this runner's. A trainer of its own (or one that is
    passed as `trainer`) is driven by Orbit's controller with checkpoints in `model_dir`, as in
    Model Garden; a checkpoint manager or an exporter of its own is used in this runner's loops.
    """

    def __init__(
        self,
        distribution_strategy: tf.distribute.Strategy | None,
        task: Any,
        mode: str,
        params: Any,
        model_dir: str,
        run_post_eval: bool = False,
        save_summary: bool = True,
        train_actions: Sequence[Action] | None = None,
        eval_actions: Sequence[Action] | None = None,
        trainer: Any = None,
        controller_cls: type[orbit.Controller] = orbit.Controller,
        summary_manager: Any = None,
        eval_summary_manager: Any = None,
        enable_async_checkpointing: bool = False,
        *,
        allow_partial: bool = False,
        eval_tasks: dict[str, Evaluated] | None = None,
        callbacks: Sequence[Callback] = (),
        stop_at_step: int | None = None,
    ) -> None:
        """Builds the parts, and restores the newest checkpoint where there is one.

        Args:
            distribution_strategy: Where it runs; the strategy in scope where None.
            task: What is learned.
            mode: One of `orbit_runner.config.schema.modes.MODES`.
            params: The experiment: Model Garden's config, or one of this runner.
            model_dir: The folder of the run; what is in it already is resumed.
            run_post_eval: Whether to evaluate once more at the end.
            save_summary: Whether to write summaries and records.
            train_actions: Called with the output of each loop of training.
            eval_actions: Called with the result of each evaluation.
            trainer: A `base_trainer.Trainer` of the user's own, made in the strategy's scope.
            controller_cls: The class of the Orbit controller.
            summary_manager: Writes summaries of training, in place of the runner's.
            eval_summary_manager: Writes summaries of evaluation.
            enable_async_checkpointing: Whether checkpoints are saved beside training.
            allow_partial: Whether to restore what fits of a checkpoint that does not fit as a
                whole.
            eval_tasks: The tasks of evaluations by name; those of the experiment where None.
            callbacks: Called at the events of the run, after those that the config names.
            stop_at_step: The step at which to save and end with `StoppedAtStep`.

        Raises:
            RunnerError: The experiment cannot run as it is written, or another process trains in
                the folder.
        """
        check_mode(mode)
        if model_dir is None:
            raise RunnerError("--model_dir: is not set; give the folder of the run")
        self.strategy = distribution_strategy or tf.distribute.get_strategy()
        self._params, self._model_dir, self._mode = params, str(model_dir), mode
        self._config: ExperimentConfig = run_config(params)
        self._run_post_eval = run_post_eval
        self._summary_manager = summary_manager
        self._eval_summary_manager = eval_summary_manager
        self._asynchronous, self._allow_partial = enable_async_checkpointing, allow_partial
        self._eval_tasks, self._callbacks = eval_tasks, tuple(callbacks)
        self._stop_at_step = stop_at_step
        self._run: Run | None = None
        self._own_controller: orbit.Controller | None = None
        self._reports: Any = None
        saves = self._config.trainer.preemption_on_demand_checkpoint
        self._signals = SignalGuard(on_terminate=saves)
        with contextlib.ExitStack() as until_run:
            if is_remote(self._model_dir):
                remote = remote_run_scope(self._model_dir, mode, params, self.strategy)
                self._model_dir = str(until_run.enter_context(remote))
            if mode in TRAINING and Workers(self.strategy).is_chief:
                until_run.enter_context(RunLock(self._model_dir))
            scope = run_scope(self._config, self.strategy, mode, self._model_dir)
            with scope, self._notes():
                self._build(
                    task,
                    trainer,
                    save_summary=save_summary,
                    train_actions=train_actions,
                    eval_actions=eval_actions,
                    controller_cls=controller_cls,
                    enable_async_checkpointing=enable_async_checkpointing,
                )
            self._until_run = until_run.pop_all()

    def _build(self, task: Any, trainer: Any, **controller: Any) -> None:
        trains, evaluates = "train" in self._mode, "eval" in self._mode or self._run_post_eval
        self._trainer = trainer or self._build_trainer(task, train=trains, evaluate=evaluates)
        self._checkpoint_manager = self._maybe_build_checkpoint_manager()
        self._take_manager()
        self._controller = self._build_controller(
            trainer=self._trainer if trains else None, evaluator=self._trainer, **controller
        )
        if self._controller is not self._own_controller:
            self._check_callbacks()
        if self._controller is self._own_controller and self._run is not None:
            self._run.restore_or_initialize()
        elif self._run is None:
            step = int(self._trainer.global_step.numpy())
            if trains and Workers(self.strategy).is_chief:
                cut_records(RunDirectory(Path(self._model_dir)).metrics, after=step)
            self._own_trainer_run.callbacks.on_run_begin(self._own_trainer_run)

    def _check_callbacks(self) -> None:
        """Raises an error if something was asked for that only this runner's own loop does."""
        kept = [one for one in self._callbacks if keeps_state(one)]
        if self._config.callbacks or kept or (self._run is not None and self._callbacks):
            raise SettingError(
                "callbacks",
                "a trainer or a controller of your own does not call them, nor save their state\n"
                "give it `train_actions` and `eval_actions`",
            )
        if self._stop_at_step is not None:
            raise RunnerError("stop_at_step: a controller of your own does not know it")

    @property
    def params(self) -> Any:
        """The experiment, as it was given."""
        return self._params

    @property
    def model_dir(self) -> str:
        """The folder of the run."""
        return self._model_dir

    @property
    def trainer(self) -> Any:
        """Trains and evaluates."""
        return self._trainer

    @property
    def checkpoint_manager(self) -> Any:
        """Saves and restores."""
        return self._checkpoint_manager

    @property
    def controller(self) -> orbit.Controller:
        """The Orbit controller."""
        return self._controller

    @property
    def _garden_params(self) -> Any:
        """The experiment as parts of Model Garden take it."""
        if not isinstance(self._params, ExperimentConfig) or not self._params.is_official:
            return self._params
        from orbit_runner.model_garden.driver.params import to_driver

        return to_driver(self._params)

    def _build_trainer(self, task: Any, train: bool, evaluate: bool) -> Any:
        """Makes what trains and evaluates.

        Args:
            task: What is learned.
            train: Whether it has to train.
            evaluate: Whether it has to evaluate.

        Returns:
            A trainer with the attributes of Model Garden's.
        """
        if gin_names_a_trainer():
            return self._trainer_of_gin(task, train, evaluate)
        self._run = Run(
            self._config,
            task,
            self.strategy,
            Path(self.model_dir),
            trains=train,
            evaluates=evaluate,
            asynchronous=self._asynchronous,
            allow_partial=self._allow_partial,
            eval_tasks=self._eval_tasks,
            callbacks=self._callbacks,
            stop_at_step=self._stop_at_step,
        )
        cls, own = type(self), OrbitExperimentRunner
        replaced = cls._build_best_checkpoint_exporter is not own._build_best_checkpoint_exporter
        exporter = self._build_best_checkpoint_exporter() if replaced else None
        return GardenTrainer(self._run, self.params, exporter)

    def _build_best_checkpoint_exporter(self) -> Any:
        """Makes what exports the best checkpoint.

        A trainer of one's own takes it; this runner's has a best checkpoint of its own, unless a
        subclass makes another exporter here.

        Returns:
            An object with `maybe_export_checkpoint`; None where there is to be none.
        """
        from official.core import train_utils

        return train_utils.maybe_create_best_ckpt_exporter(self._garden_params, self.model_dir)

    def _maybe_build_checkpoint_manager(self) -> Any:
        """Makes what saves and restores.

        Returns:
            An object with the methods of `tf.train.CheckpointManager`.
        """
        if isinstance(self.trainer, GardenTrainer):
            return GardenCheckpoints(self.trainer.run, self.trainer.checkpoint)
        if not self.trainer.checkpoint:
            return None
        from orbit_runner.model_garden.driver.own_trainer import build_checkpoint_manager

        of_a_driver = not isinstance(self._params, ExperimentConfig)
        return build_checkpoint_manager(
            self.trainer,
            self._config.trainer,
            self.model_dir,
            Workers(self.strategy),
            allow_partial=self._allow_partial or of_a_driver,
        )

    def _build_controller(
        self,
        trainer: Any,
        evaluator: Any,
        save_summary: bool = True,
        train_actions: Sequence[Action] | None = None,
        eval_actions: Sequence[Action] | None = None,
        controller_cls: type[orbit.Controller] = orbit.Controller,
        enable_async_checkpointing: bool = False,
    ) -> orbit.Controller:
        """Makes the controller.

        Args:
            trainer: What trains; None in modes that only evaluate.
            evaluator: What evaluates.
            save_summary: Whether to write summaries and records.
            train_actions: Called with the output of each loop of training.
            eval_actions: Called with the result of each evaluation.
            controller_cls: Its class.
            enable_async_checkpointing: Whether checkpoints are saved beside training.

        Returns:
            The controller.
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
        from orbit_runner.model_garden.driver.own_trainer import (
            Reports,
            garden_controller,
            summary_managers,
        )

        self._reports = Reports(self._own_trainer_run)
        leave = SignalAction(
            self._signals,
            Workers(self.strategy),
            self.checkpoint_manager,
            self.trainer.global_step,
        )
        common["train_actions"] = [*common["train_actions"], leave]
        if save_summary and isinstance(self._params, ExperimentConfig):
            common |= summary_managers(
                self._config.trainer,
                Path(self.model_dir),
                Workers(self.strategy),
                self.trainer.global_step,
                common,
            )
        return garden_controller(
            self,
            self._garden_params,
            trainer,
            evaluator,
            controller_cls,
            self._reports,
            asynchronous=enable_async_checkpointing,
            **common,
        )

    def run(self) -> tuple[tf_keras.Model, dict[str, Any]]:
        """Does what the mode says.

        Returns:
            The model, and the result of the evaluation at the end ({} where none was asked for).

        Raises:
            RunnerError: The experiment cannot run as it is written.
            Diverged: The loss diverged.
            Interrupted: A signal ended the run, its checkpoint saved.
        """
        held_run = run_scope(self._config, self.strategy, self._mode, self._model_dir)
        with self._until_run, held_run, self._output(), self._notes():
            if self._run is not None and self._controller is self._own_controller:
                logs = self._drive_own(self._run)
            else:
                logs = self._run_own_trainer()
        of_a_driver = not isinstance(self._params, ExperimentConfig)
        return self.trainer.model, logs if self._evaluates_at_end or not of_a_driver else {}

    def _run_own_trainer(self) -> dict[str, Any]:
        """Runs a trainer that is not this runner's, and returns the result of an evaluation."""
        from orbit_runner.model_garden.driver.own_trainer import drive

        settings, run = self._garden_params.trainer, self._own_trainer_run
        if self._mode in TRAINING:
            run.callbacks.on_train_begin(run)
        if self._reports is not None:
            self._reports.restart()
        guard = (
            self._signals.installed_scope() if self._mode in TRAINING else contextlib.nullcontext()
        )
        with self.strategy.scope(), error_message_scope(), guard:
            logs = drive(self, settings, self._mode, evaluates_at_end=self._evaluates_at_end)
        if self._mode in TRAINING:
            run.callbacks.on_train_end(run)
        return logs or (self._reports.last if self._reports is not None else {})

    @functools.cached_property
    def _own_trainer_run(self) -> Any:
        """What callbacks get where a trainer of the user's own trains."""
        from orbit_runner.model_garden.driver.own_trainer import OwnTrainerRun

        return OwnTrainerRun(
            self.trainer,
            self._config,
            Path(self.model_dir),
            self.strategy,
            self._garden_params.trainer.train_steps,
            CallbackList(self._callbacks),
        )

    def _notes(self) -> contextlib.AbstractContextManager[None]:
        """Prints what a user should know, as Orbit does in a driver."""
        of_a_driver = not isinstance(self._params, ExperimentConfig)
        prints = of_a_driver and not LOGGER.handlers
        return log_scope(print) if prints else contextlib.nullcontext()

    def _output(self) -> contextlib.AbstractContextManager[None]:
        # Of a driver, standard output is its own, and Orbit's lines are expected there.
        of_a_driver = not isinstance(self._params, ExperimentConfig)
        return contextlib.nullcontext() if of_a_driver else quiet_orbit()

    @property
    def _evaluates_at_end(self) -> bool:
        return self._run_post_eval or self._mode == "train_and_post_eval"

    def _drive_own(self, run: Run) -> dict[str, Any]:
        exports = self._mode in TRAINING and bool(self._config.trainer.export_subdir)
        if exports:
            check_exportable(run.task)
        with run.own_strategy.scope(), error_message_scope(lambda: run.step):
            if self._mode == "eval" and self._evaluates_new_weights(run):
                logs = loop.evaluate(run, self.controller)
            else:
                logs = loop.run_mode(run, self.controller, self._mode)
            if self._run_post_eval and self._mode != "train_and_post_eval":
                logs = loop.evaluate(run, self.controller)
        if exports:
            export_at_end(run)
        return self.trainer.as_in_model_garden(logs)

    def _evaluates_new_weights(self, run: Run) -> bool:
        """Returns whether Model Garden would evaluate what nothing was restored into, and warns."""
        restored = run.restored or run.config.task.init_checkpoint
        if restored or isinstance(self._params, ExperimentConfig):
            return False
        logging.getLogger("absl").warning(
            "no checkpoint is in %s: evaluating weights that nothing has trained", self.model_dir
        )
        return True

    def _take_manager(self) -> None:
        """Puts a checkpoint manager that a subclass made in the place of the runner's."""
        manager, run = self._checkpoint_manager, self._run
        if run is not None and not isinstance(manager, GardenCheckpoints):
            if manager is None:
                raise RunnerError(
                    "_maybe_build_checkpoint_manager returned None, and this runner's loops save\n"
                    "return super()._maybe_build_checkpoint_manager(), or a manager of your own"
                )
            run.checkpoints = ManagedCheckpoints(run, manager, asynchronous=self._asynchronous)

    def _trainer_of_gin(self, task: Any, train: bool, evaluate: bool) -> Any:
        from official.core import train_utils

        phase("building the model")
        # As for a trainer of this runner: without a seed, deterministic random ops fail.
        seed_everything(self._config.runtime.seed, keeps=True)
        with self.strategy.scope():
            return train_utils.create_trainer(
                self._garden_params,
                task,
                train=train,
                evaluate=evaluate,
                checkpoint_exporter=self._build_best_checkpoint_exporter(),
            )


def run_config(params: Any) -> ExperimentConfig:
    """Returns what a run goes by.

    Args:
        params: An experiment's config, of this runner or of any of Model Garden's classes.

    Raises:
        ConfigError: It has values that cannot be, by the rules of this runner.
    """
    if isinstance(params, ExperimentConfig):
        return params
    from orbit_runner.model_garden.driver.params import from_driver

    return from_driver(params)


def gin_names_a_trainer() -> bool:
    """Returns whether a gin binding names the class of the trainer."""
    gin = sys.modules.get("gin")
    if gin is None:
        return False
    try:
        gin.query_parameter("create_trainer.trainer_cls")
    except ValueError:
        return False
    return True
