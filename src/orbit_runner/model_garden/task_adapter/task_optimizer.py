"""Creates the optimizer of a task in the same way as Model Garden."""

from __future__ import annotations

import inspect
from typing import Any

from official.modeling import optimization

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.optimizers import Ema
from orbit_runner.errors import SettingError
from orbit_runner.tf_internals import averaged_optimizer

_PRIVACY_ARGUMENT = "dp_config"


def optimizer_of(config: ExperimentConfig, task: Any, model: Any) -> tuple[Any, Any]:
    """Returns the task's optimizer and the settings of its weight average (None if it has none).

    If the task creates no optimizer, it is that of the model. It is never wrapped in one that
    averages weights, because `WeightAverage` does that. Raises `SettingError` if the config
    requests noise on the gradients and the task does not support that.
    """
    settings = config.for_task.trainer.optimizer_config
    average = getattr(settings, "ema", None)
    if average is not None:
        settings = settings.replace(ema=None)
    made = task.create_optimizer(
        settings, config.for_task.runtime, **_privacy_arguments(config, task)
    )
    if made is None:
        made = model.optimizer
    if isinstance(made, optimization.ExponentialMovingAverage):
        optimizer, values = averaged_optimizer(made)
        return optimizer, Ema(**{**values, "start_step": int(values["start_step"])})
    return made, average


def _privacy_arguments(config: ExperimentConfig, task: Any) -> dict[str, Any]:
    requested = getattr(config.for_task.task, "differential_privacy_config", None)
    if _PRIVACY_ARGUMENT in inspect.signature(task.create_optimizer).parameters:
        return {_PRIVACY_ARGUMENT: requested}
    if requested is None:
        return {}
    raise SettingError(
        "task.differential_privacy_config",
        f"{type(task).__name__}.create_optimizer does not accept {_PRIVACY_ARGUMENT}, so no noise "
        "would be added\nremove this setting",
    )
