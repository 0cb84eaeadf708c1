"""A model that runs on parts of its images, and passes for the model it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from orbit_runner.distribute.spatial.checks import check_dims, check_model
from orbit_runner.distribute.spatial.grid import Layout, PartitionError
from orbit_runner.distribute.spatial.rules import Call
from orbit_runner.distribute.spatial.walk import run_partitioned


class PartitionedModel(tf_keras.layers.Layer):
    """Calls a model on parts of its images, a device each.

    It has no variables of its own: those of the model are trained and saved, under the same names,
    and the two can be called in turn. What is no part of a call is the model's own.

    Attributes:
        model: The model.
    """

    def __init__(
        self,
        model: tf_keras.Model,
        dims: Sequence[int],
        groups: Sequence[Sequence[str]],
    ) -> None:
        """Checks the model.

        Args:
            model: A functional model.
            dims: Parts along batch, height, width and channels.
            groups: The devices of each replica.

        Raises:
            PartitionError: The model cannot be partitioned so.
        """
        # The layers cast for themselves, each to the type of its own policy.
        super().__init__(name=f"{model.name}_in_parts", dtype="float32", autocast=False)
        check_dims(dims, groups)
        check_model(model, dims)
        self.model = model
        batch, height, width, _ = dims
        self._layouts = [Layout((batch, height, width), tuple(group)) for group in groups]
        self.built = True

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Runs the model on the devices of the replica that calls.

        Args:
            inputs: What the model takes; images are `[batch, height, width, channels]`.
            training: Whether in training.

        Returns:
            What the model gives, on the replica's first device.
        """
        # Read here, where it is still as the caller has it.
        autograph = tf.__internal__.autograph.control_status_ctx()
        return self._run(inputs, training, autograph)

    @tf.autograph.experimental.do_not_convert
    def _run(self, inputs: Any, training: Any, autograph: Any) -> Any:
        if tf.is_tensor(training):
            raise PartitionError("`training` is a tensor; allowed: True, False, None")
        layout = self._layouts[_replica() % len(self._layouts)]
        with tf.device(layout.first):
            return run_partitioned(self.model, inputs, layout, Call(bool(training), autograph))

    @property
    def metrics(self) -> list[Any]:
        """The model's."""
        return self.model.metrics

    def __getattr__(self, name: str) -> Any:
        # Reached only for what a layer does not have.
        if name.startswith("_") or name == "model":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.model, name)


def _replica() -> int:
    context = tf.distribute.get_replica_context()
    index = 0 if context is None else tf.get_static_value(context.replica_id_in_sync_group)
    return int(index or 0)


def partition_model(
    model: tf_keras.Model, dims: Sequence[int], devices: Sequence[Sequence[str]]
) -> PartitionedModel:
    """Makes a model run on parts of its images.

        model = task.build_model()
        parts = partition_model(model, [1, 2, 2, 1], [["GPU:0", "GPU:1", "GPU:2", "GPU:3"]])
        logits = parts(images, training=True)

    Args:
        model: A functional model, built as for a single device. In a strategy's scope.
        dims: Parts along batch, height, width and channels; those of the channels are 1.
        devices: The devices of each replica of this process, a device a part, the width counting
            fastest. The first of them is the replica's own, where its variables are.

    Returns:
        What is called, and handed to a task, in the place of the model.

    Raises:
        PartitionError: The model cannot be partitioned so.
    """
    return PartitionedModel(model, dims, devices)
