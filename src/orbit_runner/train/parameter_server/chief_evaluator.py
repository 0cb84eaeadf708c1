"""Evaluates under `parameter_server`: on the chief, with a copy of the weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from orbit_runner.distribute.sharded_variables import merge_shards
from orbit_runner.state.train_state import TrainState
from orbit_runner.tasks.adapter import adapt
from orbit_runner.train.evaluator import Evaluator


class ChiefEvaluator(Evaluator):
    """Fetches the weights once per evaluation, and then evaluates in this process.

    Otherwise, each batch would fetch them over the network. If an average of the weights is kept,
    it is fetched instead of the weights, which do not change on the servers. Must be created
    outside of the scope of the run's strategy.
    """

    def __init__(
        self,
        task: Any,
        state: TrainState,
        strategy: tf.distribute.Strategy,  # for this process alone
        make_dataset: Callable[[], Any],
        **settings: Any,  # passed to `Evaluator`
    ) -> None:
        with strategy.scope():
            model = adapt(task).build_model()
            copy = dataclasses.replace(state, model=model, ema=None)
            super().__init__(task, copy, strategy, make_dataset, **settings)
        self._remote = state

    def evaluate(self, num_steps: tf.Tensor) -> dict[str, Any]:
        """Evaluates `num_steps` batches (int32 scalar, -1 for all).

        Returns `validation_loss`, `validation_examples` and the task's metrics.
        """
        ema = self._remote.ema
        averages = {} if ema is None else {id(weight): averaged for weight, averaged in ema.pairs()}
        sources = merge_shards(self._remote.model.variables)
        for source, target in zip(sources, self._state.model.variables, strict=True):
            target.assign(averages.get(id(source), source).numpy())
        return super().evaluate(num_steps)
