"""Splits the images of a step over devices: by XLA on a TPU, otherwise by this runner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.partitioning import find_split
from orbit_runner.distribute.devices import device_groups
from orbit_runner.distribute.tpu_strategy import run_options, split_inputs
from orbit_runner.errors import SettingError

if TYPE_CHECKING:
    import tf_keras

    from orbit_runner.utils.types import Tensors


class Partition:
    """Splits a step as `train_input_partition_dims` or `eval_input_partition_dims` requests."""

    def __init__(
        self, config: ExperimentConfig, strategy: tf.distribute.Strategy, *, is_training: bool
    ) -> None:
        self._split = find_split(config, is_training)
        self._strategy = strategy
        self._uses_xla = config.runtime.traits.uses_tpu
        dims = {f"{self._split.section}_input_partition_dims": list(self._split.dims) or None}
        # The options of `strategy.run`; None if not on a TPU.
        self.options = run_options(config.runtime.replace(**dims))

    def wrap_model(self, model: tf_keras.Model) -> tf_keras.layers.Layer:
        """Returns the function that a step calls instead of the model, or the model itself.

        Raises SettingError if the model cannot be split as the settings request.
        """
        if self._split.parts == 1 or self._uses_xla:
            return model
        from orbit_runner.distribute.spatial import PartitionError, partition_model

        groups = device_groups(self._strategy, self._split.parts)
        try:
            return partition_model(model, self._split.dims, groups)
        except PartitionError as error:
            raise SettingError(self._split.path, str(error), code="not-divisible") from error

    @tf.autograph.experimental.do_not_convert
    def split_inputs(self, inputs: Tensors) -> Tensors:
        """Returns a replica's inputs, nested tensors, with images split if XLA splits the step.

        Must be called inside the step. Raises SettingError if the inputs cannot be split as the
        settings request.
        """
        if self._split.parts == 1 or not self._uses_xla:
            return inputs
        return split_inputs(self._strategy, inputs, self._split.dims, self._split.path)
