"""Model Garden's own runner, on the toy."""

from __future__ import annotations

import contextlib
import io
import logging
from pathlib import Path
from typing import Any

import numpy as np
import orbit
import tf_keras
from official.core import config_definitions, train_lib
from official.modeling import optimization

from orbit_runner.config.schema.experiment import ExperimentConfig
from tests.support.toy import make_strategy, toy_task


def params_of(config: ExperimentConfig, steps: int) -> config_definitions.ExperimentConfig:
    """Returns Model Garden's config of a config of the toy."""
    data, optimizer_config = config.task.train_data, config.trainer.optimizer_config
    optimizer, rate = optimizer_config.optimizer.type, optimizer_config.learning_rate.type
    settings: dict[str, Any] = {
        "optimizer": {
            "type": optimizer,
            optimizer: vars(getattr(optimizer_config.optimizer, optimizer)),
        },
        "learning_rate": {"type": rate, rate: vars(getattr(optimizer_config.learning_rate, rate))},
    }
    if optimizer_config.ema is not None:
        names = ("trainable_weights_only", "average_decay", "start_step", "dynamic_decay")
        settings["ema"] = {name: getattr(optimizer_config.ema, name) for name in names}
    return config_definitions.ExperimentConfig(
        task=config_definitions.TaskConfig(
            train_data=config_definitions.DataConfig(
                is_training=True, global_batch_size=data.global_batch_size
            ),
            validation_data=config_definitions.DataConfig(
                is_training=False, global_batch_size=data.global_batch_size
            ),
        ),
        trainer=config_definitions.TrainerConfig(
            train_steps=steps,
            steps_per_loop=5,
            checkpoint_interval=5,
            summary_interval=5,
            validation_steps=1,
            optimizer_config=optimization.OptimizationConfig(settings),
        ),
        runtime=config_definitions.RuntimeConfig(
            mixed_precision_dtype=config.runtime.mixed_precision_dtype
        ),
    )


class GardenRun:
    """A run of Model Garden's runner, with its losses and its state for inspection."""

    def __init__(
        self, config: ExperimentConfig, model_dir: Path, *, steps: int, task: Any = None
    ) -> None:
        self.losses: list[float] = []
        strategy = make_strategy("one_device")
        with strategy.scope():
            task = task or toy_task(config)
        params = params_of(config, steps)
        with contextlib.redirect_stdout(io.StringIO()):
            runner = train_lib.OrbitExperimentRunner(
                strategy, task, "train", params, str(model_dir), save_summary=False,
                train_actions=[self._note],
            )  # fmt: skip
            runner.run()
        self.trainer = runner.trainer

    def _note(self, logs: orbit.runner.Output) -> None:
        self.losses.append(float(logs["training_loss"]))

    def weights(self) -> list[np.ndarray]:
        return [variable.numpy() for variable in self.trainer.model.variables]


logging.getLogger("absl").setLevel(logging.ERROR)


def mock_bias(model: tf_keras.Model) -> float:
    """Returns the one weight that Model Garden's mock task trains: its inputs are zeros."""
    return float(model.get_weights()[1][0])
