"""Images of a step in parts, a device each: by XLA on a TPU, by the runner itself elsewhere."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.partitioning import find_split
from orbit_runner.distribute.devices import device_groups
from orbit_runner.distribute.tpu.inputs import split_inputs
from orbit_runner.distribute.tpu.strategy import run_options
from orbit_runner.errors import SettingError


class Partition:
    """What `runtime.train_input_partition_dims`, or those of evaluation, make of a step.

    Attributes:
        options: What `strategy.run` is told of it; None for nothing.
    """

    def __init__(
        self, config: ExperimentConfig, strategy: tf.distribute.Strategy, *, is_training: bool
    ) -> None:
        """Reads the settings.

        Args:
            config: The experiment.
            strategy: Where steps run.
            is_training: Whether steps are those of training.
        """
        self._split, self._strategy = find_split(config, is_training), strategy
        self._by_xla = config.runtime.distribution_strategy == "tpu"
        dims = {f"{self._split.section}_input_partition_dims": list(self._split.dims) or None}
        self.options = run_options(config.runtime.replace(**dims))

    def model(self, model: Any) -> Any:
        """Returns what a step calls in the place of the model.

        Args:
            model: The model.

        Raises:
            SettingError: The model cannot be split so.
        """
        if self._split.parts == 1 or self._by_xla:
            return model
        from orbit_runner.distribute.spatial import PartitionError, partition_model

        groups = device_groups(self._strategy, self._split.parts)
        try:
            return partition_model(model, self._split.dims, groups)
        except PartitionError as error:
            raise SettingError(self._split.path, str(error)) from error

    @tf.autograph.experimental.do_not_convert
    def inputs(self, inputs: Any) -> Any:
        """Returns a replica's inputs as the step takes them; to be called inside the step.

        Args:
            inputs: Nested tensors.

        Raises:
            SettingError: They cannot be split so.
        """
        if self._split.parts == 1 or not self._by_xla:
            return inputs
        return split_inputs(self._strategy, inputs, self._split.dims, self._split.path)
