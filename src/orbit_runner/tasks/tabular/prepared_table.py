"""The table of a task: what was fitted on its training rows, and its rows as arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from orbit_runner.data.sampling.mixture import Mixture
from orbit_runner.data.source import ArraySource
from orbit_runner.data.tables.summary import TablePart
from orbit_runner.distribute.process_group import Workers
from orbit_runner.errors import DataError, SettingError
from orbit_runner.storage.cache import local_run_directory
from orbit_runner.tasks.tabular.checks import (
    left_out,
    nearly_unique,
    setting_of_error,
)
from orbit_runner.tasks.tabular.config import TabularConfig
from orbit_runner.tasks.tabular.data_config import TableDataConfig
from orbit_runner.tasks.tabular.inputs import make_arrays
from orbit_runner.tasks.tabular.preprocessing import (
    PREPROCESSING_FILE,
    Preprocessing,
    fit_or_load,
    load_preprocessing,
    serialize_preprocessing,
)
from orbit_runner.tasks.tabular.sources import load_part, table_mixture
from orbit_runner.utils.cache import write_shared_file
from orbit_runner.utils.log import note


class PreparedTable:
    """The table of a config.

    `run_directory` is where the fitted values are written and found; None if there is no run.
    `setting` maps the path of a setting of the table to that of the task, both without `task`.
    """

    def __init__(
        self,
        config: TabularConfig,
        run_directory: str | None,
        setting: Callable[[str], str] = str,
    ) -> None:
        self.config = config
        self._directory, self._setting = run_directory, setting
        self._arrays: dict[str, ArraySource] = {}

    @functools.cached_property
    def fitted(self) -> Preprocessing:
        """The values fitted on the training rows, from the run directory if they are there."""
        path = (
            local_run_directory(self._directory) / PREPROCESSING_FILE if self._directory else None
        )
        found = load_preprocessing(path, self.config) if path else None
        if found is not None:
            return found
        try:
            found = fit_or_load(self.config)
            if path and Workers(tf.distribute.get_strategy()).is_chief:
                write_shared_file(path, serialize_preprocessing(self.config, found))
        except DataError as error:
            raise self._error("train_data", error) from error
        return found

    def part(self, params: TableDataConfig) -> TablePart:
        """Returns the rows of a section. Raises `SettingError` if they cannot be read."""
        section = _section(params)
        try:
            return load_part(self.config, section)
        except DataError as error:
            raise self._error(section, error) from error

    def arrays(self, params: TableDataConfig) -> ArraySource:
        """Returns the rows of a section as arrays, which are created once."""
        name = _section(params)
        if name not in self._arrays:
            self._arrays[name] = make_arrays(self.config, self.part(params), self.fitted)
        return self._arrays[name]

    def mixture(self, params: TableDataConfig, excluded: np.ndarray) -> Mixture | None:
        """Returns the mixture that the rows of a section are drawn from, if there is one."""
        try:
            return table_mixture(self.config, params, excluded)
        except DataError as error:
            raise self._error(_section(params), error) from error

    def note_left_out(self) -> None:
        """Logs the columns, files and rows that are not used, and columns that tell little."""
        for line in left_out(self.config):
            note(f"note: {line}")
        for line in nearly_unique(self.config):
            note(f"warning: {line}")

    def _error(self, section: str, error: DataError) -> SettingError:
        path = self._setting(setting_of_error(section, error))
        return SettingError(f"task.{path}", str(error))


def _section(params: TableDataConfig) -> str:
    return "train_data" if params.is_training else "validation_data"
