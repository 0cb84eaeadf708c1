"""The batches of a section whose examples are arrays in memory."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from orbit_runner.config.schema.data import DataConfig
from orbit_runner.data.array_pipeline import eval_chunks, eval_dataset, train_chunks, train_dataset
from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.order.mixture import Mixture
from orbit_runner.data.source import ArraySource
from orbit_runner.data.step_batches import Chunks

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors


@dataclasses.dataclass(frozen=True)
class ArrayInputs:
    """Makes the batches of sections.

    A batch of training is `(features, labels)`, or `(features, labels, weights)` if examples have
    weights. One of evaluation is `(features, labels, counts)`: `counts` is 0 for rows that only
    fill up the last batch, else 1; if examples have weights, it is a pair of counts and weights.

    Attributes:
        features: The name of the features among the arrays of a source.
        labels: The name of the labels.
        weights: The name of the weights of examples, which a source need not have.
    """

    features: str
    labels: str
    weights: str

    def train(
        self,
        source: ArraySource,
        params: DataConfig,
        input_context: tf.distribute.InputContext | None,
        start_step: int | tf.Tensor,
        excluded: np.ndarray,
        mixture: Mixture | None,
    ) -> tf.data.Dataset:
        """Returns one worker's endless training batches.

        `start_step` is the step of the first batch. `excluded`, int64 [k], are the examples to
        leave out; a `mixture` is without them.
        """
        return train_dataset(
            source,
            start_step=start_step,
            input_context=input_context,
            options=PipelineOptions.from_config(params),
            **self._train_settings(params, excluded, mixture),
        )

    def evaluate(
        self,
        source: ArraySource,
        params: DataConfig,
        input_context: tf.distribute.InputContext | None,
    ) -> tf.data.Dataset:
        """Returns one worker's evaluation batches, each example once."""
        return eval_dataset(
            source,
            input_context=input_context,
            options=PipelineOptions.from_config(params),
            cache=params.cache,
            **self._eval_settings(params),
        )

    def chunks(
        self,
        source: ArraySource,
        params: DataConfig,
        replicas: int,
        excluded: np.ndarray,
        mixture: Mixture | None,
    ) -> Chunks:
        """Returns the batches of `train` or `evaluate` by step."""
        if params.is_training:
            settings = self._train_settings(params, excluded, mixture)
            return train_chunks(source, replicas=replicas, **settings)
        return eval_chunks(source, replicas=replicas, **self._eval_settings(params))

    def _train_settings(
        self, params: DataConfig, excluded: np.ndarray, mixture: Mixture | None
    ) -> dict[str, Any]:
        return {
            "global_batch_size": params.global_batch_size,
            "seed": params.seed or 0,
            "shuffle": params.shuffle_buffer_size > 1,
            "excluded": excluded,
            "mixture": mixture,
            "element": self._train_element,
        }

    def _eval_settings(self, params: DataConfig) -> dict[str, Any]:
        return {
            "global_batch_size": params.global_batch_size,
            "drop_remainder": params.drop_remainder,
            "element": self._eval_element,
        }

    def _train_element(self, batch: dict[str, Tensors]) -> Tensors:
        pair = batch[self.features], batch[self.labels]
        return (*pair, batch[self.weights]) if self.weights in batch else pair

    def _eval_element(self, batch: dict[str, Tensors], count: tf.Tensor) -> Tensors:
        counts = (count, batch[self.weights]) if self.weights in batch else count
        return batch[self.features], batch[self.labels], counts
