"""The batches of a section, from arrays or from a function of the step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from orbit_runner.config.schema.data import DataConfig
from orbit_runner.data.array_pipeline import eval_chunks, train_chunks
from orbit_runner.data.augment import CropFlip
from orbit_runner.data.chunks import Chunks, endless_dataset, one_pass_dataset
from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.order.mixture import Mixture
from orbit_runner.data.order.sharding import replica_slices
from orbit_runner.data.source import ArraySource

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
        weights: The name of the weights of examples, which a source need not have; "" for none.
    """

    features: str
    labels: str
    weights: str

    def chunks(
        self,
        source: ArraySource,
        params: DataConfig,
        replicas: int,
        excluded: np.ndarray,
        mixture: Mixture | None,
        augmentation: CropFlip | None = None,
    ) -> Chunks:
        """Returns the batches of a section by step.

        `excluded`, int64 [k], are the training examples to leave out; a `mixture` is without them.
        `augmentation` is that of images in training.
        """
        if params.is_training:
            return train_chunks(
                source,
                global_batch_size=params.global_batch_size,
                seed=params.seed or 0,
                replicas=replicas,
                shuffle=params.shuffle_buffer_size > 1,
                augmentation=augmentation,
                excluded=excluded,
                mixture=mixture,
                element=self._train_element,
            )
        return eval_chunks(
            source,
            global_batch_size=params.global_batch_size,
            replicas=replicas,
            drop_remainder=params.drop_remainder,
            element=self._eval_element,
        )

    def _train_element(self, batch: dict[str, Tensors]) -> Tensors:
        pair = batch[self.features], batch[self.labels]
        return (*pair, batch[self.weights]) if self.weights in batch else pair

    def _eval_element(self, batch: dict[str, Tensors], count: tf.Tensor) -> Tensors:
        counts = (count, batch[self.weights]) if self.weights in batch else count
        return batch[self.features], batch[self.labels], counts


def chunks_dataset(
    make_chunks: Callable[[int], Chunks],
    params: DataConfig,
    input_context: tf.distribute.InputContext | None,
    start_step: int | tf.Tensor,
) -> tf.data.Dataset:
    """Returns one worker's pipeline of a section; training starts at the batch of `start_step`.

    `make_chunks` returns its batches for a number of replicas.
    """
    slices = replica_slices(params.global_batch_size, input_context)
    chunks = make_chunks(slices.replicas_in_sync)
    options = PipelineOptions.from_config(params)
    if params.is_training:
        return endless_dataset(chunks, slices, start_step, options)
    return one_pass_dataset(chunks, slices, options, cache=params.cache)
