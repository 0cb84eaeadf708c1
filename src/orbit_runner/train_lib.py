"""Runs one experiment, from a config to trained weights."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orbit
import tensorflow as tf
import tf_keras

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.partitioning import effective_runtime
from orbit_runner.data.source_cache import source_cache_scope
from orbit_runner.determinism.block_sizes import fix_block_sizes
from orbit_runner.determinism.numerics import (
    configure_numerics,
    reset_keras,
    restored_generators_scope,
    unchanged_generators_scope,
)
from orbit_runner.distribute.cluster.description import Cluster
from orbit_runner.distribute.cluster.resolver import common_purpose
from orbit_runner.distribute.process_group import Workers, is_asynchronous
from orbit_runner.distribute.strategies import build_strategy
from orbit_runner.errors import RunnerError, SettingError
from orbit_runner.run_directory.remote_runs import check_remote_run, training_scope
from orbit_runner.serving.export_at_end import export_at_end, exports_at_end
from orbit_runner.storage.paths import is_remote, local_run_directory
from orbit_runner.tasks.adapter import build_task
from orbit_runner.train import loop
from orbit_runner.train.callbacks.base import Callback
from orbit_runner.train.request import Action, RunRequest
from orbit_runner.train.run_builder import build_run
from orbit_runner.train.run_scope import run_scope, tracking_scope

if TYPE_CHECKING:
    from official.core import base_task
    from official.modeling.hyperparams import base_config

    from orbit_runner.tasks.multitask import JointTask

__all__ = ["OrbitExperimentRunner", "prepare", "run_experiment"]
# The methods of Model Garden's `OrbitExperimentRunner` that build its parts.
_PARTS = (
    "_build_trainer",
    "_maybe_build_checkpoint_manager",
    "_build_best_checkpoint_exporter",
    "_build_controller",
)


def prepare(
    config: ExperimentConfig,
    model_dir: str,
    *,
    cluster: Cluster | None = None,
    mode: str = "train_and_eval",
) -> tuple[tf.distribute.Strategy, base_task.Task | JointTask]:
    """Configures the process, and builds the strategy and the task for `run_experiment`.

    Args:
        config: The experiment.
        model_dir: The run directory.
        cluster: The cluster that this process is a member of, if any.
        mode: The mode of the run; all members of a cluster must pass the same.

    Returns:
        The strategy, and the task that the config names.

    Raises:
        DeviceError: The config asks for devices that this machine does not have.
        MemberLost: Another member of the cluster did not connect in time.
    """
    model_dir = _expand_user(model_dir)
    directory = local_run_directory(model_dir)
    configure_numerics(config.runtime)
    runtime = effective_runtime(config, mode)
    strategy = build_strategy(runtime, cluster, common_purpose(config, mode))
    if config.runtime.is_portable:  # After the devices are set, because it runs an op.
        fix_block_sizes()
    reset_keras()
    if not is_remote(model_dir):
        directory.mkdir(parents=True, exist_ok=True)
    with strategy.scope():
        task = build_task(config, str(directory))
    return strategy, task


def run_experiment(
    distribution_strategy: tf.distribute.Strategy | None,
    task: base_task.Task | JointTask,
    mode: str,
    params: ExperimentConfig | base_config.Config,
    model_dir: str,
    run_post_eval: bool = False,
    save_summary: bool = True,
    train_actions: Sequence[Action] | None = None,
    eval_actions: Sequence[Action] | None = None,
    trainer: None = None,
    controller_cls: type[orbit.Controller] = orbit.Controller,
    summary_manager: orbit.utils.SummaryManagerInterface | None = None,
    eval_summary_manager: orbit.utils.SummaryManagerInterface | None = None,
    enable_async_checkpointing: bool = False,
    callbacks: Sequence[Callback] = (),
    stop_at_step: int | None = None,
    resume: str = "same",
) -> tuple[tf_keras.Model, dict[str, Any]]:
    """Trains, evaluates, or both, with the arguments of Model Garden's `run_experiment` and more.

    At the end, the random generators of Python, NumPy, TensorFlow and Keras are restored. What
    `prepare` configured stays: op determinism, eager mode, the precision policy, threads, devices.

    Args:
        distribution_strategy: The strategy; the current one if None.
        task: The task.
        mode: One of `orbit_runner.config.schema.modes.MODES`.
        params: The experiment, also as a config of Model Garden's class. The seed is then that of
            `tf.random.set_seed`, and the calling program decides whether ops are deterministic.
        model_dir: The run directory. A run with a checkpoint is resumed.
        run_post_eval: Whether to evaluate at the end and return the result.
        save_summary: Whether to write summaries and records.
        train_actions: Called with the output of each loop of training.
        eval_actions: Called with the result of each evaluation.
        trainer: Must be None: every run is trained by this runner's own trainer.
        controller_cls: The class of the Orbit controller.
        summary_manager: A custom writer of training summaries, in place of the runner's.
        eval_summary_manager: A custom writer of evaluation summaries.
        enable_async_checkpointing: Whether to save checkpoints while training continues.
        callbacks: Called at the events of the run, after the callbacks of the config.
        stop_at_step: A step before the last, at which to save and raise `StoppedAtStep`.
        resume: `same`: resume only if all settings that affect the weights are the same.
            `override`: always resume.

    Returns:
        The model, and the result of the last evaluation, or {} if there was none.

    Raises:
        RunnerError: The experiment cannot run, or another process trains in `model_dir`.
        Diverged: The loss diverged.
        StoppedAtStep: The run reached `stop_at_step`.
        SettingError: A setting does not suit this model or machine.
        Interrupted: A signal ended the run after it had saved a checkpoint.
        ExportFailed: The run is complete, but its export (`trainer.export_subdir`) failed.
        MemberLost: Another worker was lost.
    """
    if trainer is not None:
        raise SettingError(
            "trainer",
            f"got {type(trainer).__name__}, expected None: this runner trains every task\n"
            "move the step of your trainer to `train_step` of the task",
            code="not-supported",
        )
    strategy = distribution_strategy or tf.distribute.get_strategy()
    config = _to_runner_config(params)
    with contextlib.ExitStack() as held_scopes:
        model_dir = _expand_user(model_dir)
        if is_remote(model_dir):
            is_alone = Workers(strategy).count == 1 and not is_asynchronous(strategy)
            check_remote_run(model_dir, mode, is_alone=is_alone)
            model_dir = str(held_scopes.enter_context(training_scope(model_dir)))
        return run_request(
            RunRequest(
                config=config,
                task=task,
                mode=mode,
                model_dir=Path(model_dir),
                strategy=strategy,
                run_post_eval=run_post_eval,
                save_summary=save_summary,
                asynchronous=enable_async_checkpointing,
                callbacks=callbacks,
                train_actions=train_actions or (),
                eval_actions=eval_actions or (),
                controller_cls=controller_cls,
                summary_manager=summary_manager,
                eval_summary_manager=eval_summary_manager,
                stop_at_step=stop_at_step,
                resume=resume,
            )
        )


@restored_generators_scope()
@source_cache_scope()
def run_request(request: RunRequest) -> tuple[tf_keras.Model, dict[str, Any]]:
    """Does what `run_experiment` describes."""
    exports = exports_at_end(request.config, request.task, request.mode)
    with run_scope(request):
        run = build_run(request)
        controller = loop.build_controller(run)  # Sets the default step of `tf.summary`.
        run.restore_or_initialize()
        with tracking_scope(run):
            logs = loop.run_mode(run, controller)
            if exports:
                export_at_end(run, logs)
    return run.model, logs


class OrbitExperimentRunner:
    """Calls `run_experiment`, with the constructor and the method of Model Garden's class."""

    def __init_subclass__(cls) -> None:
        for name in _PARTS:
            if name in vars(cls):
                raise RunnerError(
                    f"{cls.__name__}.{name} is not supported: this runner builds the parts of a "
                    "run itself\nuse a callback, or methods of the task",
                    code="not-supported",
                )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Keeps the arguments, which are those of `run_experiment`."""
        self._arguments = inspect.signature(run_experiment).bind(*args, **kwargs)

    def run(self) -> tuple[tf_keras.Model, dict[str, Any]]:
        """Trains, evaluates, or both; see `run_experiment`."""
        return run_experiment(*self._arguments.args, **self._arguments.kwargs)


def _expand_user(model_dir: str) -> str:
    if model_dir is None:  # A flag that was not given.
        raise RunnerError(
            "is not set; set it to the run directory", path="--model_dir", code="not-set"
        )
    return os.path.expanduser(model_dir)


def _to_runner_config(params: ExperimentConfig | base_config.Config) -> ExperimentConfig:
    """Returns a config of this runner or of Model Garden as a config of this runner.

    Raises ConfigError if this runner does not allow a value.
    """
    if isinstance(params, ExperimentConfig):
        return params
    from orbit_runner.model_garden.loading import from_model_garden

    config = from_model_garden(params)
    with unchanged_generators_scope():  # `get_seed` draws a seed for an op.
        seed, _ = tf.compat.v1.get_seed(None)
    runtime = config.runtime.replace(
        deterministic=False, seed=config.runtime.seed if seed is None else int(seed)
    )
    return config.replace(runtime=runtime)
