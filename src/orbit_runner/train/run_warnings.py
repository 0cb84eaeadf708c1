"""Why the results of a run may not be what they seem, as far as its config and data tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orbit_runner.config.schedule_length import describe_early_end
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.data.tables.cell_texts import describe_equal_but_case, equal_but_case
from orbit_runner.run_directory.metric_records import better_values
from orbit_runner.tasks.shared_examples import find_shared_examples
from orbit_runner.train.schedule import Plan


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
        _describe_many_shapes(config),
    ]
    return [text for text in texts if text]


def class_warnings(names: Sequence[str]) -> list[str]:
    """Returns the warnings about the names of a task's classes."""
    same = equal_but_case(names)
    return [f"the classes have {describe_equal_but_case(same)}"] if same else []


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


def _describe_many_shapes(config: ExperimentConfig) -> str:
    """Returns the warning that XLA compiles the step for many shapes of batches, or ""."""
    if not config.compiles_steps or not config.task.batch_shapes_vary:
        return ""
    return (
        "XLA compiles the training step again for each shape of a batch, and batches as wide as "
        "their longest sentence have many; set task.train_data.static_batch to true"
    )
