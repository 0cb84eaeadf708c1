"""Evaluation under `parameter_server`: by the chief itself, on a copy of the weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from orbit_runner.distribute.sharded_variables import whole
from orbit_runner.state.train_state import TrainState
from orbit_runner.train.evaluator import Evaluator


class OwnEvaluator(Evaluator):
    """Fetches the weights once an evaluation, and evaluates as a process by itself does.

    Read where they are, they would come over the network once a batch. The average of the weights,
    where one is kept, is fetched in their place, so that servers keep the weights themselves.
    """

    def __init__(
        self,
        task: Any,
        state: TrainState,
        strategy: tf.distribute.Strategy,
        make_dataset: Callable[[], Any],
        **settings: Any,
    ) -> None:
        """Makes an evaluator; to be called outside of the scope of the run's strategy.

        Args:
            task: The task.
            state: What is evaluated.
            strategy: The chief's own strategy.
            make_dataset: Makes the data set.
            **settings: As of `Evaluator`.
        """
        with strategy.scope():
            model = task.build_model()
            copy = dataclasses.replace(state, model=model, ema=None)
            super().__init__(task, copy, strategy, make_dataset, **settings)
        self._remote = state

    def evaluate(self, num_steps: tf.Tensor) -> dict[str, Any]:
        """Evaluates some batches.

        Args:
            num_steps: int32 scalar; -1 for all there are.

        Returns:
            `validation_loss`, `validation_examples` and the task's metrics.
        """
        ema = self._remote.ema
        averages = {} if ema is None else {id(weight): kept for weight, kept in ema.pairs()}
        sources = whole(self._remote.model.variables)
        for source, target in zip(sources, self._state.model.variables, strict=True):
            target.assign(averages.get(id(source), source).numpy())
        return super().evaluate(num_steps)
