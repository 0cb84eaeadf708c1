"""Splits the images of a step over the devices of a TPU; XLA does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.partitioning import find_split, tpu_needed_problem
from orbit_runner.distribute.tpu_strategy import run_options, split_inputs
from orbit_runner.errors import SettingError

if TYPE_CHECKING:
    from orbit_runner.utils.types import Tensors


class Partition:
    """Splits a step as `train_input_partition_dims` or `eval_input_partition_dims` requests."""

    def __init__(
        self, config: ExperimentConfig, strategy: tf.distribute.Strategy, *, is_training: bool
    ) -> None:
        self._split = find_split(config, is_training)
        self._strategy = strategy
        self._runtime = config.runtime
        dims = {f"{self._split.section}_input_partition_dims": list(self._split.dims) or None}
        # The options of `strategy.run`; None if not on a TPU.
        self.options = run_options(config.runtime.replace(**dims))

    @tf.autograph.experimental.do_not_convert
    def split_inputs(self, inputs: Tensors) -> Tensors:
        """Returns a replica's inputs, nested tensors, with images split as the settings request.

        Must be called inside the step. Raises SettingError if the inputs cannot be split.
        """
        if self._split.parts == 1:
            return inputs
        if not self._runtime.traits.uses_tpu:
            problem = tpu_needed_problem(self._split, self._runtime)
            raise SettingError(problem.path, problem.message, code=problem.code)
        return split_inputs(self._strategy, inputs, self._split.dims, self._split.path)
