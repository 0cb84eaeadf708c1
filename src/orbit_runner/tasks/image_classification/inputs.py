"""The batches of a section's images: from memory, or decoded by a pipeline."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from orbit_runner.data.chunks import Chunks
from orbit_runner.data.images.dataset import ImageDataset
from orbit_runner.data.images.decode_errors import BadImages
from orbit_runner.data.images.pipeline import eval_images, train_images
from orbit_runner.data.options import PipelineOptions
from orbit_runner.data.order.epochs import NO_EXAMPLES
from orbit_runner.data.order.mixture import Mixture
from orbit_runner.data.source import ArraySource
from orbit_runner.tasks.array_inputs import ArrayInputs, chunks_dataset
from orbit_runner.tasks.base import section_of
from orbit_runner.tasks.image_classification.data_config import (
    ImageDataConfig,
    make_crop_flip,
    make_mixing,
    make_preprocessing,
)
from orbit_runner.tasks.image_classification.sources import Size, is_ready

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors

_ARRAYS = ArrayInputs("image", "label", weights="")


@dataclasses.dataclass(frozen=True)
class ImageInputs:
    """The images of a section, and how they become batches.

    A batch of training is `(image, label)`, or `(image, label, weight)` if images may fail to
    decode. One of an evaluation is `(image, label, weight)`, and each example is in one of them.

    Attributes:
        source: The images.
        params: The section.
        num_classes: The largest label plus one; None to accept all labels.
        input_size: Height, width and channels that images are resized to; None to keep their size.
        bad: Counts the images that fail to decode.
        excluded: The training examples to leave out, int64 [k].
        mixture: Returns what training examples are drawn from; None if all are equally likely.
        dtype: The type that pixels are converted to; None to keep theirs.
    """

    source: ImageDataset
    params: ImageDataConfig
    num_classes: int | None
    input_size: Size = None
    bad: BadImages | None = None
    excluded: np.ndarray = dataclasses.field(default_factory=lambda: NO_EXAMPLES)
    mixture: Callable[[], Mixture | None] = lambda: None
    dtype: str | None = None

    def chunks(self, replicas: int) -> Chunks | None:
        """Returns the batches by step; None for images to decode."""
        if not is_ready(self.source, self.params, self.input_size):
            return None
        return self._make_chunks(self.source, replicas)

    def dataset(
        self, input_context: tf.distribute.InputContext | None, start_step: int | tf.Tensor
    ) -> tf.data.Dataset:
        """Returns one worker's pipeline. Training is endless, and begins with `start_step`."""
        params = self.params
        if is_ready(self.source, params, self.input_size):
            make_chunks = functools.partial(self._make_chunks, self.source)
            return chunks_dataset(make_chunks, params, input_context, start_step)
        settings: dict[str, Any] = {
            "shape": self.source.spec(self.input_size)[0],
            "resize": self.input_size is not None,
            "bad": self.bad or BadImages(section_of(params), params.max_bad_images),
            "preprocessing": make_preprocessing(params, is_in_memory=self.source.is_in_memory),
            "num_classes": self.num_classes,
            "global_batch_size": params.global_batch_size,
            "input_context": input_context,
            "options": PipelineOptions.from_config(params),
        }
        if params.is_training:
            batches = train_images(
                self.source,
                **settings,
                seed=params.seed or 0,
                shuffle_buffer_size=params.shuffle_buffer_size,
                start_step=start_step,
                excluded=self.excluded,
                mixture=self.mixture(),
                augmentation=make_crop_flip(params),
                mixing=make_mixing(params, self.num_classes),
            )
        else:
            batches = eval_images(
                self.source,
                **settings,
                drop_remainder=params.drop_remainder,
                cache=params.cache,
            )
        return batches.map(
            self._element, num_parallel_calls=None if self.dtype is None else tf.data.AUTOTUNE
        )

    def _make_chunks(self, source: ArraySource, replicas: int) -> Chunks:
        augmentation = make_crop_flip(self.params)
        chunks = _ARRAYS.chunks(
            source, self.params, replicas, self.excluded, self.mixture(), augmentation
        )
        return dataclasses.replace(chunks, make=lambda steps: self._converted(*chunks.make(steps)))

    def _element(self, batch: dict[str, tf.Tensor]) -> Tensors:
        has_weights = self.params.max_bad_images or not self.params.is_training
        names = ("image", "label", "weight") if has_weights else ("image", "label")
        return self._converted(*[batch[name] for name in names])

    def _converted(self, images: tf.Tensor, *rest: tf.Tensor) -> Tensors:
        if self.dtype is not None:
            images = tf.cast(images, self.dtype)
        return images, *rest
