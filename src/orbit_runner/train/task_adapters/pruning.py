"""Pruning, for models that a task has wrapped for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.state.train_state import TrainState


def pruning_action(
    config: ExperimentConfig, state: TrainState, model_dir: Path
) -> Callable[[Any], None] | None:
    """Makes what prunes after each loop; to be called once a checkpoint was restored.

    Args:
        config: The experiment.
        state: What is trained.
        model_dir: The folder of the run, where the summaries of pruning go.

    Returns:
        Model Garden's action; None where `task.pruning` is not set.
    """
    if not getattr(config.for_task.task, "pruning", None):
        return None
    from official.core import actions

    # It reads the step from there.
    state.model.optimizer = state.optimizer
    return actions.PruningAction(str(model_dir), state.model, state.optimizer)
