"""The table of a task: what was fitted on its training rows, and its rows as arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from orbit_runner.data.order.mixture import Mixture
from orbit_runner.data.source import ArraySource
from orbit_runner.data.tables.columns import CATEGORY, NUMBER, TablePart
from orbit_runner.errors import DataError, SettingError
from orbit_runner.tasks.assets import Assets
from orbit_runner.tasks.tabular.checks import (
    column_warnings,
    left_out,
    setting_of_error,
)
from orbit_runner.tasks.tabular.config import TabularConfig
from orbit_runner.tasks.tabular.data_config import TableDataConfig
from orbit_runner.tasks.tabular.inputs import make_arrays
from orbit_runner.tasks.tabular.preprocessing import (
    Preprocessing,
    fitted_of_run,
)
from orbit_runner.tasks.tabular.sources import feature_kinds, load_part, table_mixture
from orbit_runner.utils.log import note


class PreparedTable:
    """The table of a config.

    `assets` are those of the run, which has the fitted values.
    `setting` maps the path of a setting of the table to that of the task, both without `task`.
    """

    def __init__(
        self,
        config: TabularConfig,
        assets: Assets,
        setting: Callable[[str], str] = str,
    ) -> None:
        self.config = config
        self._assets, self._setting = assets, setting
        self._arrays: dict[str, ArraySource] = {}

    @functools.cached_property
    def fitted(self) -> Preprocessing:
        """The values fitted on the training rows of the run."""
        try:
            return fitted_of_run(self.config, self._assets)
        except DataError as error:
            raise self._error("train_data", error) from error

    @functools.cached_property
    def _fitted_config(self) -> TabularConfig:
        """The config with the features that were fitted, whichever columns the table has now."""
        features = self.config.features
        if features.names:
            return self.config
        lists = {"numeric": self.fitted.numeric, "categorical": self.fitted.categorical}
        try:
            current = feature_kinds(self.config)
        except DataError:
            current = {}  # The training data are not there, and not needed.
        if current == {**dict.fromkeys(lists["numeric"], NUMBER),
                       **dict.fromkeys(lists["categorical"], CATEGORY)}:  # fmt: skip
            return self.config
        features = features.replace(
            exclude=(), **{name: tuple(columns) for name, columns in lists.items()}
        )
        return self.config.replace(features=features)

    def part(self, params: TableDataConfig) -> TablePart:
        """Returns the rows of a section. Raises `SettingError` if they cannot be read."""
        section = _section(params)
        try:
            return load_part(self._fitted_config, section)
        except DataError as error:
            raise self._error(section, error) from error

    def arrays(self, params: TableDataConfig) -> ArraySource:
        """Returns the rows of a section as arrays, which are created once."""
        name = _section(params)
        if name not in self._arrays:
            part = self.part(params)
            try:
                self._arrays[name] = make_arrays(self._fitted_config, part, self.fitted)
            except DataError as error:
                raise self._error(name, error) from error
        return self._arrays[name]

    def mixture(self, params: TableDataConfig, excluded: np.ndarray) -> Mixture | None:
        """Returns the mixture that the rows of a section are drawn from, if there is one."""
        try:
            return table_mixture(self._fitted_config, params, excluded)
        except DataError as error:
            raise self._error(_section(params), error) from error

    def note_left_out(self) -> None:
        """Logs the columns, files and rows that are not used, and columns that tell little."""
        for line in left_out(self.config):
            note(f"note: {line}")
        for line in column_warnings(self.config):
            note(f"warning: {line}")

    def _error(self, section: str, error: DataError) -> SettingError:
        path = self._setting(setting_of_error(section, error))
        return SettingError(f"task.{path}", str(error))


def _section(params: TableDataConfig) -> str:
    return "train_data" if params.is_training else "validation_data"
