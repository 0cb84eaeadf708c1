"""A model that runs on parts of its images, and can be used like the original model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tf_keras

from orbit_runner.distribute.spatial.checks import check_dims, check_model
from orbit_runner.distribute.spatial.grid import Layout, PartitionError
from orbit_runner.distribute.spatial.rules import Call
from orbit_runner.distribute.spatial.walk import run_partitioned
from orbit_runner.tf_internals import autograph_status

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors


class PartitionedModel(tf_keras.layers.Layer):
    """Calls a model on parts of its images, with one device per part.

    It has no variables of its own: those of the model are trained and saved, under the same names,
    and both can be called in turn. Attributes that a layer does not have are those of the model.

    The arguments are those of `partition_model`.
    """

    def __init__(
        self,
        model: tf_keras.Model,
        dims: Sequence[int],
        groups: Sequence[Sequence[str]],
    ) -> None:
        # Each layer casts its inputs to the dtype of its own policy.
        super().__init__(name=f"{model.name}_in_parts", dtype="float32", autocast=False)
        check_dims(dims, groups)
        check_model(model, dims)
        self.model = model
        batch, height, width, _ = dims
        self._layouts = [Layout((batch, height, width), tuple(group)) for group in groups]
        self.built = True

    def call(self, inputs: Tensors, training: bool | None = None) -> Tensors:
        """Returns the output of the model, run on the devices of the replica that calls it.

        Images are [batch, height, width, channels]. The output is on the first device of the
        replica.
        """
        # Read here, because it is different in `_run`, which is not converted.
        autograph = autograph_status()
        return self._run(inputs, training, autograph)

    @tf.autograph.experimental.do_not_convert
    def _run(self, inputs: Tensors, training: bool | tf.Tensor | None, autograph: Any) -> Tensors:
        if tf.is_tensor(training):
            raise PartitionError("`training` is a tensor; allowed: True, False, None")
        layout = self._layouts[_replica_index() % len(self._layouts)]
        with tf.device(layout.first):
            return run_partitioned(self.model, inputs, layout, Call(bool(training), autograph))

    @property
    def metrics(self) -> list[tf_keras.metrics.Metric]:
        """The metrics of the model."""
        return self.model.metrics

    def __getattr__(self, name: str) -> Any:
        # Called only for attributes that a layer does not have.
        if name.startswith("_") or name == "model":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.model, name)


def _replica_index() -> int:
    context = tf.distribute.get_replica_context()
    index = 0 if context is None else tf.get_static_value(context.replica_id_in_sync_group)
    return int(index or 0)


def partition_model(
    model: tf_keras.Model, dims: Sequence[int], devices: Sequence[Sequence[str]]
) -> PartitionedModel:
    """Returns a model that runs on parts of its images, to be used instead of the given model.

        model = task.build_model()
        parts = partition_model(model, [1, 2, 2, 1], [["GPU:0", "GPU:1", "GPU:2", "GPU:3"]])
        logits = parts(images, training=True)

    Must be called in the strategy's scope. `model` must be functional, and built as for a single
    device. `dims` is the number of parts along batch, height, width and channels; the last must be
    1. `devices` contains the devices of each replica of this process, one for each part, with the
    width changing fastest. The first must be the replica's own device, which has its variables.
    Raises `PartitionError` if the model cannot be partitioned in this way.
    """
    return PartitionedModel(model, dims, devices)
