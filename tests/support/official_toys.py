"""What a user's own module may register with Model Garden: small tasks, alone and together."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from official.core import base_task, exp_factory, task_factory
from official.core import config_definitions as cfg
from official.modeling import hyperparams, optimization
from official.modeling.multitask import base_model, configs, multitask


@dataclasses.dataclass
class LineConfig(cfg.TaskConfig):
    """Settings of `LineTask`."""

    slope: float = 2.0
    gathers: bool = False
    loss_is: str = "scalar"  # or a vector, or a constant
    noise: float = 0.1
    size: int = 24
    activation: str = "linear"
    train_data: cfg.DataConfig = dataclasses.field(
        default_factory=lambda: cfg.DataConfig(is_training=True, global_batch_size=8)
    )
    validation_data: cfg.DataConfig = dataclasses.field(
        default_factory=lambda: cfg.DataConfig(is_training=False, global_batch_size=8)
    )


@task_factory.register_task_cls(LineConfig)
class LineTask(base_task.Task):
    """y = slope · x + noise, from a pipeline that shuffles and draws."""

    def build_model(self) -> tf_keras.Model:
        inputs = tf_keras.Input([1])
        layer = tf_keras.layers.Dense(1, activation=self.task_config.activation, name="line")
        return tf_keras.Model(inputs, layer(inputs))

    def build_inputs(self, params: Any, input_context: Any = None) -> tf.data.Dataset:
        slope = self.task_config.slope
        data = tf.data.Dataset.range(self.task_config.size)
        if params.is_training:
            data = data.shuffle(16, seed=params.seed).repeat()

        def example(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            x = tf.reshape(tf.cast(index, tf.float32) / 8.0, [1])
            noise = tf.random.uniform([1]) if params.is_training else tf.zeros([1])
            return x, slope * x + self.task_config.noise * noise

        size = params.global_batch_size
        if input_context is not None:
            size = input_context.get_per_replica_batch_size(size)
        return data.map(example, num_parallel_calls=4).batch(size).prefetch(2)

    def build_losses(self, labels: Any, model_outputs: Any, aux_losses: Any = None) -> tf.Tensor:
        return tf.reduce_mean(tf.square(labels - model_outputs))

    def build_metrics(self, training: bool = True) -> list[Any]:
        return [tf_keras.metrics.MeanAbsoluteError(name="error")]

    def train_step(self, inputs: Any, model: Any, optimizer: Any, metrics: Any = None) -> Any:
        logs = super().train_step(inputs, model, optimizer, metrics)
        tf.summary.scalar("seen_in_the_step", logs[self.loss])
        return {**logs, "passed_through": tf.shape(inputs[0])}

    def validation_step(self, inputs: Any, model: Any, metrics: Any = None) -> dict[str, Any]:
        logs = super().validation_step(inputs, model, metrics)
        logs[self.loss] = {
            "scalar": logs[self.loss],
            "vector": tf.cast(tf.square(inputs[1] - model(inputs[0])), tf.bfloat16)[:, 0],
            "constant": 0,
        }[self.task_config.loss_is]
        if self.task_config.gathers:
            logs["labels"] = inputs[1]
        return logs

    def aggregate_logs(self, state: Any = None, step_logs: Any = None) -> Any:
        if not self.task_config.gathers:
            return None
        return [*(state or []), *(part.numpy() for part in step_logs["labels"])]

    def reduce_aggregated_logs(self, aggregated_logs: Any, global_step: Any = None) -> Any:
        labels = np.concatenate(aggregated_logs)
        return {"label_sum": labels.sum(), "image/labels": np.ones([2, 4, 4, 3], np.float32)}


def trainer_settings(**changes: Any) -> dict[str, Any]:
    """Returns `trainer` settings of a short run."""
    optimizer = {"optimizer": {"type": "sgd"}, "learning_rate": {"type": "constant"}}
    optimizer["learning_rate"]["constant"] = {"learning_rate": 0.01}  # type: ignore[assignment]
    return {
        "train_steps": 6,
        "steps_per_loop": 3,
        "validation_interval": 6,
        "checkpoint_interval": 3,
        "summary_interval": 3,
        "optimizer_config": optimization.OptimizationConfig(optimizer),
        **changes,
    }


@exp_factory.register_config_factory("my_line")
def line() -> cfg.ExperimentConfig:
    """Returns one task."""
    trainer = cfg.TrainerConfig(**trainer_settings())
    return cfg.ExperimentConfig(task=LineConfig(), trainer=trainer)


class BothModel(base_model.MultiTaskBaseModel):
    """A layer that both tasks share, and one for each."""

    def __init__(self, names: list[str]) -> None:
        self._names = names
        super().__init__()

    def _instantiate_sub_tasks(self) -> dict[str, tf_keras.Model]:
        shared = tf_keras.layers.Dense(2, name="shared")
        models = {}
        for name in self._names:
            inputs = tf_keras.Input([1])
            outputs = tf_keras.layers.Dense(1, name=name)(shared(inputs))
            models[name] = tf_keras.Model(inputs, outputs)
        return models


@dataclasses.dataclass
class BothConfig(configs.MultiTaskConfig):
    """Settings of `BothTasks`."""

    model: hyperparams.Config = dataclasses.field(default_factory=hyperparams.Config)


@task_factory.register_task_cls(BothConfig)
class BothTasks(multitask.MultiTask):
    """Two lines on one model."""

    def build_multitask_model(self) -> BothModel:
        return BothModel(list(self.tasks))


def routine(name: str, **settings: Any) -> configs.TaskRoutine:
    """Returns a task among others."""
    weight, steps = settings.pop("task_weight", 1.0), settings.pop("eval_steps", None)
    return configs.TaskRoutine(
        task_name=name,
        task_config=LineConfig(**settings),
        task_weight=weight,
        eval_steps=steps,
    )


@exp_factory.register_config_factory("my_lines")
def lines() -> configs.MultiTaskExperimentConfig:
    """Returns two tasks that are trained together."""
    return configs.MultiTaskExperimentConfig(
        task=BothConfig(
            task_routines=(
                routine("up", slope=1.0, task_weight=3.0),
                routine("down", slope=-1.0, eval_steps=2),
            )
        ),
        trainer=configs.MultiTaskTrainerConfig(**trainer_settings()),
    )


@exp_factory.register_config_factory("my_line_on_two")
def line_on_two() -> configs.MultiEvalExperimentConfig:
    """Returns one task that is evaluated on two others."""
    return configs.MultiEvalExperimentConfig(
        task=LineConfig(),
        trainer=cfg.TrainerConfig(**trainer_settings()),
        eval_tasks=(routine("up", slope=1.0), routine("down", slope=-1.0, gathers=True)),
    )
