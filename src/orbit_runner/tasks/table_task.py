"""The base class of tasks whose examples are rows of a table."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import tensorflow as tf

from orbit_runner.data.source import ArraySource
from orbit_runner.data.step_batches import Chunks
from orbit_runner.tasks.base import Task
from orbit_runner.tasks.imbalance.classes import Classes
from orbit_runner.tasks.tabular.config import TabularConfig
from orbit_runner.tasks.tabular.data_config import TableDataConfig
from orbit_runner.tasks.tabular.inputs import INPUTS
from orbit_runner.tasks.tabular.prepared_table import PreparedTable
from orbit_runner.tasks.tabular.sources import target_classes

if TYPE_CHECKING:
    pass


class TableTask(Task):
    """Reads the batches of a table. Subclasses define `table_config` and `arrays`."""

    @property
    def table_config(self) -> TabularConfig:
        """The config as that of a table."""
        raise NotImplementedError

    @functools.cached_property
    def table(self) -> PreparedTable:
        """The table of the config."""
        return PreparedTable(self.table_config, lambda: self.learned, self._data_error)

    def arrays(self, params: TableDataConfig) -> ArraySource:
        """Returns the features and targets of a section as arrays, which are created once."""
        raise NotImplementedError

    def build_inputs(
        self,
        params: TableDataConfig,
        input_context: tf.distribute.InputContext | None = None,
        start_step: int | tf.Tensor = 0,
    ) -> tf.data.Dataset:
        """Returns the input pipeline of one section. Training starts at the batch of `start_step`.

        For training, it yields `(features, targets)` endlessly, or `(features, targets, weight)`
        if rows have weights. For evaluation, it yields `(features, targets, counts)`, each row
        once. The features and targets are those of `arrays`.
        """
        source = self.arrays(params)
        if params.is_training:
            self.table.note_left_out()
            excluded = self.excluded_examples(params)
            mixture = self.table.mixture(params, excluded)
            return INPUTS.train(source, params, input_context, start_step, excluded, mixture)
        return INPUTS.evaluate(source, params, input_context)

    def chunks(self, params: TableDataConfig, replicas: int = 1) -> Chunks:
        """Returns the batches of a section by step."""
        excluded = self.excluded_examples(params)
        mixture = self.table.mixture(params, excluded)
        return INPUTS.chunks(self.arrays(params), params, replicas, excluded, mixture)

    def num_examples(self, params: TableDataConfig) -> int:
        """Returns the number of rows of a section that are used."""
        return self.table.part(params).size - len(self.excluded_examples(params))

    def training_classes(self) -> Classes:
        """Returns the class of each training row, of the only classification target."""
        return target_classes(self.table.config)
