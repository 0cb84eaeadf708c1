"""`TaskData`: what a task reads, and what is known about it before TensorFlow is imported."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from orbit_runner.config.errors import Problem
from orbit_runner.errors import DataError
from orbit_runner.registration import Entry
from orbit_runner.registry import TASKS


class TaskData(abc.ABC):
    """What a task reads, according to its config; registered as `data=` of the task.

    A subclass uses NumPy, not TensorFlow, so that commands can look at the data without it.

    Attributes:
        config: The config of the task, a `TaskConfig`.
        excludes_examples: Whether the pipelines leave out the examples of `train_data.exclude`.
    """

    excludes_examples: ClassVar[bool] = False

    def __init__(self, config: Any) -> None:
        self.config = config

    @abc.abstractmethod
    def files(self) -> Mapping[str, Sequence[Any]] | None:
        """Returns the files that are read, to detect changes between two starts of a run.

        Called after `problems` and before TensorFlow is imported.

        Returns:
            Rows of `DataFile` (see `orbit_runner.data.fingerprint`) by section. If None, the names,
            sizes and modification times of the files in `input_path` and in settings that end with
            `file` or `path` are compared.
        """

    def problems(self) -> Iterator[Problem]:
        """Yields (setting, message) for problems with files and directories.

        Called after the config is resolved and before TensorFlow is imported, so that a missing
        file is reported early. The setting is a dotted path below `task`.
        """
        yield from ()

    @property
    def file_reading(self) -> str:
        """How a worker of a cluster reads the files of the training data.

        `memory`: all, once, at the start; `own`: those of its own examples; `all`: all in each
        epoch, though it decodes only its own examples; "" if it is not known.
        """
        return ""

    def packages(self) -> Sequence[str]:
        """Returns the packages that compute the inputs, besides those that every run uses.

        Their versions are recorded with each checkpoint, because others may give other weights.

        Returns:
            Names of installed packages, as pip knows them. By default none.
        """
        return ()

    def shared_examples(self) -> Any:
        """Returns the validation examples that are also training examples.

        Called when a run starts, and by `runner inspect`, with the seeds of the run.

        Returns:
            `SharedExamples` (see `orbit_runner.data.shared_examples`), or None if there are none
            or it is unknown. By default None.
        """
        return None

    def training_examples(self, section: Any, model_dir: str | None) -> Any:
        """Returns which examples are in the batch of each training step, for `runner batch`.

        Called before TensorFlow is imported.

        Args:
            section: `train_data`, with the seed of the run.
            model_dir: The run directory; None if there is no run yet.

        Returns:
            `TrainingExamples` (see `orbit_runner.tasks.examples`). If None, which examples are in
            a batch is only known by running the input pipeline.
        """
        return None

    def excluded_rows(self) -> Any:
        """Returns the indices of the training examples that `exclude` leaves out, or None."""
        if not getattr(self.config.train_data, "exclude", ""):
            return None
        return self.training_examples(self.config.train_data, None).excluded

    def training_classes(self) -> Any:
        """Returns the class of each training example, for class weights and class sampling.

        They are `Classes` of `orbit_runner.tasks.imbalance`. Raises `DataError` if there are none.
        """
        raise NotImplementedError(f"{type(self).__name__} must define `training_classes`")

    def baselines(self) -> Mapping[str, tuple[str, float]]:
        """Returns what a constant prediction reaches on the validation data.

        Called after an evaluation, to show it beside the results.

        Returns:
            What is predicted, such as `majority`, and the result, by the name of the metric. By
            default none.
        """
        return {}

    def baselines_of(self, metrics: Iterable[str]) -> Mapping[str, tuple[str, float]]:
        """Returns those of `known_baselines` for some metrics."""
        known = self.known_baselines()
        return {name: known[name] for name in metrics if name in known}

    def known_baselines(self) -> Mapping[str, tuple[str, float]]:
        """Returns those of `baselines` that are finite; none if the data cannot be read now."""
        try:
            known = self.baselines()
            return {name: known[name] for name in known if math.isfinite(known[name][1])}
        except Exception:  # Code of the user may read the data, which are not needed otherwise.
            return {}

    def summary(self) -> Any:
        """Returns a first look at the data for `runner inspect`, or None.

        Only tables have one: a `TableSummary` of `orbit_runner.data.tables.summary`.
        """
        return None

    def setting_of_error(self, section: str, error: DataError) -> str:
        """Returns the setting that an error of a dataset is about.

        Args:
            section: The section whose dataset raised the error, such as `train_data`.
            error: The error.

        Returns:
            A dotted path below `task`.
        """
        return error.field if error.field.startswith("split.") else f"{section}.{error.field}"

    def learn(self, assets: Any) -> Any:
        """Returns what a run learns from its training data, such as its classes.

        Args:
            assets: The `Assets` of the run (see `orbit_runner.tasks.assets`). A new run computes
                what it asks them for; all later starts and all commands read the same from its
                files.

        Returns:
            An object for the task, or None.
        """
        return None


class UndeclaredData(TaskData):
    """The data of a task that is registered without `data=`."""

    def files(self) -> None:
        """Returns None: only the names of files are known."""


def declares_data(config: object) -> bool:
    """Returns whether the task of a config is registered with `data=`. Imports nothing."""
    return _find_entry(config) is not None


def task_data(config: object) -> TaskData:
    """Returns the data of a task's config: that of the nearest class that has been registered."""
    entry = _find_entry(config)
    return UndeclaredData(config) if entry is None else entry.load_data()(config)


def _find_entry(config: Any) -> Entry | None:
    declared = [entry for entry in TASKS.registered() if entry.data is not None]
    for config_class in type(config).__mro__:
        reference = f"{config_class.__module__}:{config_class.__qualname__}"
        entries = [entry for entry in declared if entry.config in (config_class, reference)]
        if entries:
            named = [entry for entry in entries if entry.name == config.name]
            return [*named, *entries][0]
    return None
