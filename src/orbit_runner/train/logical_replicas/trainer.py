"""The inner loop of training, on the shards of logical replicas."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.runtime import LOGICAL_REPLICAS
from orbit_runner.errors import SettingError
from orbit_runner.state.replica_state import replica_local_variables
from orbit_runner.train.evaluator import as_scalar
from orbit_runner.train.gradients import StepFn, gradient_function
from orbit_runner.train.logical_replicas.shards import (
    Shards,
    keep_on_first_device,
    metric_variables,
)
from orbit_runner.train.measurements.watch import Watch
from orbit_runner.train.trainer import Trainer


class LogicalTrainer(Trainer):
    """Sums the gradients of all logical replicas in one tree, and applies them once.

    So weights and state are the same on any number of devices that divides the logical replicas.
    """

    def __init__(self, config: ExperimentConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        _reject_synchronized_normalization(self.state.model)

    def _make_watch(self, config: ExperimentConfig) -> Watch | None:
        # The gradients that the optimizer gets are summed already, so there is one of each.
        return self._watch_of(config, replicas=1)

    def _step_fn(self, config: ExperimentConfig) -> StepFn:
        runtime, state, loss = config.runtime, self.state, self._task.loss
        count = self._strategy.num_replicas_in_sync
        self._shards = Shards(runtime.logical_replicas, count, runtime.seed, "train")
        optimizer = self._wrap_optimizer()
        gradients, variables = gradient_function(
            self._convert(self._build_task_step()),
            optimizer,
            pieces=config.trainer.gradient_accumulation_steps,
            jit_compile=config.uses_xla,
            loss=loss,
        )

        def shard(inputs: Any) -> list[tf.Tensor]:
            found, grads = gradients(inputs)
            return [as_scalar(found), *grads]

        def step(inputs: Any) -> dict[str, tf.Tensor]:
            layers = state.trained_layers
            unchanged = layers.frozen if layers is not None else ()
            total, *grads = self._shards.sum_over_shards(
                shard,
                inputs,
                state.global_step.read_value(),
                metrics=metric_variables(self._metrics),
                averaged=replica_local_variables(state.model, unchanged),
            )
            _apply(optimizer, grads, variables)
            return {loss: total}

        return step

    def _replica_step(self, inputs: Any) -> None:
        self._record(self._run_task_step(inputs))
        self.state.global_step.assign_add(1)
        self._inspect_graph()

    def _record(self, logs: dict[str, Any]) -> None:
        total, count = logs[self._task.loss], tf.constant(float(self._shards.logical))
        self._loss.add(keep_on_first_device(total), keep_on_first_device(count))

    @tf.autograph.experimental.do_not_convert
    def _inspect_graph(self) -> None:
        super()._inspect_graph()
        if self.flops is not None:
            # The loops over shards cannot be told from those over the pieces of a batch.
            known = self._shards.each == 1 or self._pieces <= 2
            self.flops = self.flops * self._shards.each if known else None


def _apply(optimizer: Any, grads: list[tf.Tensor], variables: list[tf.Variable]) -> None:
    """Applies gradients that are the same on all devices, without summing them again."""
    # The older AdamW of Model Garden clips only gradients that it sums itself.
    norm = getattr(optimizer, "gradient_clip_norm", 0.0)
    if norm:
        grads, _ = tf.clip_by_global_norm(grads, norm)
    pairs = list(zip(grads, variables, strict=True))
    # Optimizers of both kinds, and those that scale the loss, accept this argument.
    optimizer.apply_gradients(pairs, experimental_aggregate_gradients=False)


def _reject_synchronized_normalization(model: Any) -> None:
    for layer in getattr(model, "submodules", ()):
        if "SyncBatchNorm" in type(layer).__name__ or getattr(layer, "synchronized", False):
            raise SettingError(
                LOGICAL_REPLICAS,
                f"is not supported: layer {layer.name!r} normalizes over all replicas at once\n"
                "use batch normalization that is not synchronized (use_sync_bn: false)",
            )
