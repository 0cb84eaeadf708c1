"""Selects the model that `runner export`, `predict` and `evaluate` use; no TensorFlow."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from orbit_runner.checkpoint.latest_checkpoint import (
    AVERAGE,
    NEWEST,
    PLAIN,
    CheckpointLocation,
    choose_checkpoint,
    choose_weights,
)
from orbit_runner.cli.flags.config_flags import IMPORT, SETTINGS_OF_FLAG
from orbit_runner.cli.flags.rows import Group, flag
from orbit_runner.cli.flags.values import OverrideAction
from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.run_directory.config import is_made_with, resolve_run
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.utils.streams import print_message

# The settings that can be changed. The others concern training.
MODEL_SETTINGS = (
    "task",
    "runtime.intra_op_threads",
    "runtime.inter_op_threads",
    "runtime.mixed_precision_dtype",
)
MODEL_SETTINGS_RULE = (
    "the model runs in this process and is not trained: other settings have no effect"
)
# The flags that select a model of a run.
MODEL_FLAGS = (
    Group(
        [
            flag(
                "--checkpoint=STEP|newest|best|best-STEP",
                "checkpoint to use; by default the best one if the run keeps it, otherwise the "
                "newest",
            ),
            flag(
                "--weights",
                "moving average of the weights (trainer.optimizer_config.ema), or the weights "
                "themselves; by default the average, if the run keeps one",
                choices=(AVERAGE, PLAIN),
            ),
            flag(
                "--data_dir=DIR",
                "current directory of the dataset, if it has moved",
                action=OverrideAction,
                settings=SETTINGS_OF_FLAG["data_dir"],
            ),
            IMPORT,
        ],
        "model of the run",
        "--task.NAME=VALUE changes a setting of the task",
    ),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectedModel:
    """A model of a run."""

    run: Path  # run directory
    resolved: ResolvedConfig  # config of the run, with the changes that the flags make
    choice: CheckpointLocation
    weights: str  # `average` or `plain`


def select_model(run: Path, flags: argparse.Namespace) -> SelectedModel:
    """Returns the model that the flags select, after checking its files.

    `flags` are `MODEL_FLAGS`, parsed.
    """
    imports = tuple(flags.imports or ())
    written = resolve_run(run, imports)
    trainer = written.config.trainer
    averages = written.config.averages_weights
    requested = flags.checkpoint
    if requested is None and flags.weights == PLAIN and averages:
        requested = NEWEST  # The best checkpoint has only the averages.
    best = trainer.best_checkpoint_export_subdir
    choice = choose_checkpoint(run, requested, best, print_message)
    if flags.checkpoint is None and choice.is_best:
        print_message(f"note: this is the best checkpoint, {choice.name}; see --checkpoint=newest")
    weights = choose_weights(flags.weights, averages=averages, choice=choice)
    record = choice.record()
    if not is_made_with(run, record.config, written.config):
        path = RunDirectory(run).config
        print_message(f"note: {choice.name} was made with a different config than {path}")
    resolved = resolve_run(run, imports, flags.overrides) if flags.overrides else written
    return SelectedModel(run=run, resolved=resolved, choice=choice, weights=weights)
