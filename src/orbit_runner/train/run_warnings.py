"""Why the results of a run may not be what they seem, as far as its config and data tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orbit_runner.config.schedule_length import describe_early_end
from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.task_data import task_data
from orbit_runner.data.shared_examples import SharedExamples
from orbit_runner.errors import DataError, SettingError
from orbit_runner.run_directory.metric_records import better_values
from orbit_runner.train.schedule import Plan

if TYPE_CHECKING:
    from orbit_runner.config.schema.base import Config


def run_warnings(config: ExperimentConfig, plan: Plan | None) -> list[str]:
    """Returns the warnings that a run shows at its start, and `runner inspect`.

    `config` has local paths, and a schedule with a number of steps. `plan` is None if the length of
    the run is unknown.
    """
    shared = find_shared_examples(config)
    early_end = describe_early_end(config, plan.train_steps) if plan is not None else ""
    texts = [
        early_end,
        *_describe_wrong_directions(config),
        str(shared) if shared else "",
    ]
    return [text for text in texts if text]


def find_shared_examples(config: ExperimentConfig) -> SharedExamples | None:
    """Returns the validation examples that are also training examples, or None.

    None also if the data cannot be read, which the run reports elsewhere.
    """
    try:
        shared: SharedExamples | None = task_data(_with_seeds(config)).shared_examples()
        return shared
    except (DataError, SettingError, OSError):
        return None


def _with_seeds(config: ExperimentConfig) -> Config:
    """Returns the task with the seeds of the run, which decide what synthetic data are."""
    if config.is_official:
        return config.task
    sections = {
        name: resolve_data_config(getattr(config.task, name), config.runtime)
        for name in ("train_data", "validation_data")
    }
    return config.task.replace(**sections)


def _describe_wrong_directions(config: ExperimentConfig) -> Iterator[str]:
    """Yields settings by which the worst evaluation would count as the best."""
    trainer = config.trainer
    rules = []
    if trainer.best_checkpoint_export_subdir:
        metric = trainer.best_checkpoint_eval_metric
        rules.append((metric, "best_checkpoint_metric_comp", trainer.best_checkpoint_metric_comp))
    if trainer.early_stopping is not None:
        stopping = trainer.early_stopping
        rules.append((stopping.metric, "early_stopping.metric_comp", stopping.metric_comp))
    for metric, setting, value in rules:
        better = better_values(metric)
        if better and better != value:
            yield (
                f"trainer.{setting} is {value}, but {better} values of {metric} are better: "
                f"the worst evaluation would count as the best; set it to {better}"
            )
