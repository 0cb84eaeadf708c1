"""Rejects settings that a custom trainer, controller, manager or exporter does not implement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.trainer import TrainerConfig
from orbit_runner.errors import RunnerError, SettingError
from orbit_runner.trackers.tracking import make_tracking
from orbit_runner.train.callbacks.base import Callback, keeps_state

# Settings that only this runner's own loops, checkpoint manager and best checkpoints implement.
LOOP_SETTINGS = ("max_time", "checkpoint_time_interval")
CHECKPOINT_MANAGER_SETTINGS = ("keep_checkpoint_interval", "keep_checkpoint_time_interval")
BEST_CHECKPOINT_SETTINGS = ("best_checkpoints_to_keep",)


def reject_settings(config: ExperimentConfig, names: Sequence[str], part: str) -> None:
    """Raises `SettingError` for a setting of the trainer that a custom part does not implement."""
    for name in names:
        if getattr(config.trainer, name) != getattr(TrainerConfig, name):
            raise SettingError(f"trainer.{name}", f"is not supported with a custom {part}")


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
    stateful = [one for one in callbacks if keeps_state(one)]
    if config.callbacks or stateful or (has_own_trainer and callbacks):
        raise SettingError(
            "callbacks",
            "a custom trainer or controller does not call them or save their state\n"
            "use `train_actions` and `eval_actions` instead",
        )
    if make_tracking(config.trackers):
        raise SettingError(
            "trackers",
            "a custom trainer or controller passes records only to tensorboard\n"
            "remove the others, and use `train_actions` and `eval_actions` instead",
        )
    if stop_at_step is not None:
        raise RunnerError("stop_at_step: is not supported with a custom controller")
    reject_settings(config, LOOP_SETTINGS, "trainer or controller")
    if not has_own_trainer:
        reject_settings(
            config, (*CHECKPOINT_MANAGER_SETTINGS, *BEST_CHECKPOINT_SETTINGS), "trainer"
        )


def check_custom_trainer(settings: Any) -> None:
    """Raises `SettingError` for a setting of steps that only this runner's trainer takes."""
    for name, is_set in (
        ("fine_tuning", settings.fine_tuning is not None),
        ("skip_steps", bool(settings.skip_steps)),
        ("on_nonfinite", settings.on_nonfinite == "skip"),
    ):
        if is_set:
            reason = "is not supported by custom trainers; remove it"
            raise SettingError(f"trainer.{name}", reason)
