"""The table of a task: what was fitted on its training rows, and its rows as arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from orbit_runner.data.order.mixture import Mixture
from orbit_runner.data.source import ArraySource
from orbit_runner.data.tables.columns import CATEGORY, DATE, NUMBER, TablePart
from orbit_runner.errors import DataError, SettingError
from orbit_runner.tasks.tabular.checks import (
    column_warnings,
    left_out,
)
from orbit_runner.tasks.tabular.config import TabularConfig
from orbit_runner.tasks.tabular.data_config import TableDataConfig
from orbit_runner.tasks.tabular.inputs import make_arrays
from orbit_runner.tasks.tabular.preprocessing import (
    Preprocessing,
)
from orbit_runner.tasks.tabular.sources import feature_kinds, load_part, table_mixture
from orbit_runner.utils.log import note


class PreparedTable:
    """The table of a config.

    `fitted` returns the values fitted on the training rows of the run.
    `data_error` returns the error for a section whose rows cannot be read.
    """

    def __init__(
        self,
        config: TabularConfig,
        fitted: Callable[[], Preprocessing],
        data_error: Callable[[str, DataError], SettingError],
    ) -> None:
        self.config = config
        self._fitted = fitted
        self._data_error = data_error
        self._arrays: dict[str, ArraySource] = {}

    @property
    def fitted(self) -> Preprocessing:
        """The values fitted on the training rows of the run."""
        return self._fitted()

    @functools.cached_property
    def _fitted_config(self) -> TabularConfig:
        """The config with the features that were fitted, whichever columns the table has now."""
        features = self.config.features
        if features.names:
            return self.config
        lists = {
            "numeric": self.fitted.numeric,
            "categorical": self.fitted.categorical,
            "date": self.fitted.dates,
        }
        try:
            current = feature_kinds(self.config)
        except DataError:
            current = {}  # The training data are not there, and not needed.
        if current == {**dict.fromkeys(lists["numeric"], NUMBER),
                       **dict.fromkeys(lists["categorical"], CATEGORY),
                       **dict.fromkeys(lists["date"], DATE)}:  # fmt: skip
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
            raise self._data_error(section, error) from error

    def arrays(self, params: TableDataConfig) -> ArraySource:
        """Returns the rows of a section as arrays, which are created once."""
        name = _section(params)
        if name not in self._arrays:
            part = self.part(params)
            try:
                self._arrays[name] = make_arrays(self._fitted_config, part, self.fitted)
            except DataError as error:
                raise self._data_error(name, error) from error
        return self._arrays[name]

    def mixture(self, params: TableDataConfig, excluded: np.ndarray) -> Mixture | None:
        """Returns the mixture that the rows of a section are drawn from, if there is one."""
        try:
            return table_mixture(self._fitted_config, params, excluded)
        except DataError as error:
            raise self._data_error(_section(params), error) from error

    def note_left_out(self) -> None:
        """Logs the columns, files and rows that are not used, and columns that tell little."""
        for line in left_out(self.config):
            note(f"note: {line}")
        for line in column_warnings(self.config):
            note(f"warning: {line}")


def _section(params: TableDataConfig) -> str:
    return "train_data" if params.is_training else "validation_data"
