"""Replaces `official.modeling.multitask.train_lib` in drivers, under the same names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import tensorflow as tf
from official.core import train_utils as official_train_utils
from official.modeling.multitask import train_lib as official_train_lib

from orbit_runner.model_garden.driver.experiment_runner import OrbitExperimentRunner
from orbit_runner.tasks.multitask import EvalTask, JointTask

if TYPE_CHECKING:
    import orbit
    import tf_keras
    from official.core import base_task
    from official.core import base_trainer as core_trainer
    from official.modeling.multitask import base_model, base_trainer, configs, multitask

    from orbit_runner.train.callbacks.base import Logs

    _ExporterCreator: TypeAlias = Callable[..., official_train_utils.BestCheckpointExporter | None]
    _Model: TypeAlias = base_model.MultiTaskBaseModel | tf_keras.Model

# Saved now, because `drop_in` may replace them later.
_official_run = official_train_lib.run_experiment
_official_run_with_eval = official_train_lib.run_experiment_with_multitask_eval
_default_exporter = official_train_utils.maybe_create_best_ckpt_exporter


def run_experiment(
    *,
    distribution_strategy: tf.distribute.Strategy,
    task: multitask.MultiTask,
    model: _Model,
    mode: str,
    params: configs.MultiTaskExperimentConfig,
    model_dir: str,
    run_post_eval: bool = False,
    trainer: base_trainer.MultiTaskBaseTrainer | None = None,
    eval_summary_manager: orbit.utils.SummaryManagerInterface | None = None,
    best_ckpt_exporter_creator: _ExporterCreator = _default_exporter,
) -> _Model | tuple[_Model, Logs]:
    """Trains one model on several tasks, evaluates it, or both.

    With a custom trainer or exporter, Model Garden's function is called.

    Args:
        distribution_strategy: The strategy.
        task: The `MultiTask`.
        model: The model of all tasks, created in the strategy's scope.
        mode: `train`, `eval`, `train_and_eval` or `continuous_eval`.
        params: The experiment config, a `MultiTaskExperimentConfig`.
        model_dir: The run directory.
        run_post_eval: Whether to evaluate once more at the end.
        trainer: A custom trainer.
        eval_summary_manager: Writes the summaries of evaluation instead of the runner's own.
        best_ckpt_exporter_creator: Returns a custom exporter of the best checkpoint.

    Returns:
        The model. With `run_post_eval`, the model and the result of the evaluation at the end.
    """
    if trainer is not None or best_ckpt_exporter_creator is not _default_exporter:
        return _official_run(
            distribution_strategy=distribution_strategy,
            task=task,
            model=model,
            mode=mode,
            params=params,
            model_dir=model_dir,
            run_post_eval=run_post_eval,
            trainer=trainer,
            eval_summary_manager=eval_summary_manager,
            best_ckpt_exporter_creator=best_ckpt_exporter_creator,
        )
    trained_model, logs = OrbitExperimentRunner(
        distribution_strategy,
        JointTask(task, params.task, model),
        mode,
        params,
        model_dir,
        run_post_eval,
        eval_summary_manager=eval_summary_manager,
    ).run()
    return (trained_model, _remove_speed(logs)) if run_post_eval else trained_model


def run_experiment_with_multitask_eval(
    *,
    distribution_strategy: tf.distribute.Strategy,
    train_task: base_task.Task,
    eval_tasks: Sequence[base_task.Task],
    mode: str,
    params: configs.MultiEvalExperimentConfig,
    model_dir: str,
    run_post_eval: bool = False,
    save_summary: bool = True,
    trainer: core_trainer.Trainer | None = None,
    eval_summary_manager: orbit.utils.SummaryManagerInterface | None = None,
    best_ckpt_exporter_creator: _ExporterCreator = _default_exporter,
    train_actions_factory: official_train_lib.TrainActionsFactoryType | None = None,
    eval_actions_factory: official_train_lib.EvalActionsFactoryType | None = None,
) -> tuple[tf_keras.Model, Logs]:
    """Trains one task, evaluates its model on several tasks, or both.

    With a custom trainer, exporter or actions, Model Garden's function is called.

    Args:
        distribution_strategy: The strategy.
        train_task: The task to train.
        eval_tasks: The tasks to evaluate, in the order of `params.eval_tasks`.
        mode: `train`, `eval`, `train_and_eval` or `continuous_eval`.
        params: The experiment config, a `MultiEvalExperimentConfig`.
        model_dir: The run directory.
        run_post_eval: Whether to evaluate once more at the end.
        save_summary: Whether to write summaries and records.
        trainer: A custom trainer.
        eval_summary_manager: Writes the summaries of evaluation instead of the runner's own.
        best_ckpt_exporter_creator: Returns a custom exporter of the best checkpoint.
        train_actions_factory: Returns custom actions of training.
        eval_actions_factory: Returns custom actions of evaluation.

    Returns:
        The model and the result of the evaluation at the end, {} without `run_post_eval`.
    """
    custom_parts = (trainer, train_actions_factory, eval_actions_factory)
    if any(custom_parts) or best_ckpt_exporter_creator is not _default_exporter:
        result: tuple[tf_keras.Model, Logs] = _official_run_with_eval(
            distribution_strategy=distribution_strategy,
            train_task=train_task,
            eval_tasks=list(eval_tasks),
            mode=mode,
            params=params,
            model_dir=model_dir,
            run_post_eval=run_post_eval,
            save_summary=save_summary,
            trainer=trainer,
            eval_summary_manager=eval_summary_manager,
            best_ckpt_exporter_creator=best_ckpt_exporter_creator,
            train_actions_factory=train_actions_factory,
            eval_actions_factory=eval_actions_factory,
        )
        return result
    steps = {routine.task_config.name: routine.eval_steps for routine in params.eval_tasks}
    model, logs = OrbitExperimentRunner(
        distribution_strategy,
        train_task,
        mode,
        params,
        model_dir,
        run_post_eval,
        save_summary,
        eval_summary_manager=eval_summary_manager,
        eval_tasks={task.name: EvalTask(task, steps.get(task.name)) for task in eval_tasks},
    ).run()
    return model, _remove_speed(logs)


def _remove_speed(logs: Logs) -> Logs:
    # Model Garden calls its evaluator directly, not the controller, which adds the speed.
    return {name: value for name, value in logs.items() if name != "steps_per_second"}


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(official_train_lib, name)
