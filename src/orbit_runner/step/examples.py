"""Which examples are in which step of a run or an experiment. Does not import TensorFlow."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from orbit_runner.config.schema.data import resolve_data_config
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.trainer import MAX_EPOCHS
from orbit_runner.data.order.epochs import NO_EXAMPLES, Rows
from orbit_runner.data.order.steps import Occurrences
from orbit_runner.errors import DataError, RunnerError, SettingError, format_list
from orbit_runner.run_directory.data_record import (
    DataChanged,
    difference_from_record,
    find_record,
)
from orbit_runner.run_directory.metric_records import recoveries_of
from orbit_runner.run_directory.run_reader import RunReader
from orbit_runner.storage.staging import localize
from orbit_runner.tasks.examples import TrainingExamples
from orbit_runner.train.schedule import make_plan

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepExamples:
    """The examples of a step; steps and epochs are numbered from 1, everything else from 0."""

    step: int  # after which `global_step` has this value
    rows: int  # the number of rows of the global batch
    seed: int  # of the training data at that step
    recoveries: int  # how often the run had returned to a checkpoint before
    chosen: list[JsonObject]  # what is known about the first rows, by name


class TrainingOrder:
    """The order of the training examples of a run or of an experiment.

    `run` is the run directory, or None if the experiment is not run yet.
    """

    def __init__(self, config: ExperimentConfig, run: Path | None) -> None:
        self.config = localize(config)
        self.run = run
        self._reader = RunReader(run) if run else None
        self.parts = self._reader.log.recoveries() if self._reader else [(1, 0)]
        # The step that the run has reached; 0 if there is none.
        self.reached_step = self._reader.step if self._reader else 0
        self._examples = functools.lru_cache(maxsize=2)(self._load)

    def check_data(self, first: int = 1) -> None:
        """Raises `RunnerError` if the data are not those of the steps from `first` on.

        The steps of a run that has a record of its data had other examples if the data has changed
        since then. Those of an experiment, and of a run without a record, are not checked.
        """
        if self.run is None:
            return
        difference = difference_from_record(self.config.task, self.run)
        changes = [line for line in difference.changes if not line.startswith("validation_data")]
        if changes:
            raise DataChanged(
                f"{self.run}: the training data changed since the run last started, so its steps "
                f"had other examples than can be shown now:\n{format_list(changes)}\n"
                "restore these files"
            )
        _, resumes = find_record(self.run)
        steps = [change["step"] for change in resumes if change["step"] >= first]
        if steps:
            raise DataChanged(
                f"{self.run}: resumed at step {max(steps)} with other data, so the examples of "
                f"earlier steps are not known\nshow steps after {max(steps)}"
            )

    def recoveries(self, step: int) -> int:
        """Returns how often the run had returned to a checkpoint before a step."""
        return recoveries_of(self.parts, step)

    def _section(self, recoveries: int) -> Any:
        """Returns the settings of the training data, with their seed after some recoveries."""
        data = self.config.task.train_data
        return resolve_data_config(data, self.config.runtime, recoveries)

    def examples(self, recoveries: int = 0) -> TrainingExamples | None:
        """Returns the examples; None if they are only known by running the input pipeline."""
        return self._examples(recoveries)

    def excluded_examples(self) -> np.ndarray:
        """Returns the indices of the examples that the config leaves out, ascending."""
        if not getattr(self.config.task.train_data, "exclude", ""):
            return NO_EXAMPLES
        return self._require_examples(0).excluded

    def step(self, step: int, *, most: int | None = None, text: bool = False) -> StepExamples:
        """Returns the examples of a step.

        At most `most` rows are described; all if None. `text` adds the sentences. The task must
        know its examples.
        """
        recoveries = self.recoveries(step)
        examples = self._require_examples(recoveries)
        rows = examples.order.rows(step - 1)
        count = len(rows.examples)
        chosen = np.arange(count)[:most]
        described = examples.describe(rows, chosen, text=text)
        return StepExamples(
            step=step,
            rows=count,
            seed=int(self._section(recoveries).seed or 0),
            recoveries=recoveries,
            chosen=[
                _row_numbers(rows, row) | description for row, description in enumerate(described)
            ],
        )

    def last_step(self) -> int:
        """Returns the last step of the run, or of the experiment; 0 if it is not known."""
        train_steps = self._reader.train_steps if self._reader else None
        per_epoch = self._require_examples(0).order.steps_per_epoch
        return train_steps or make_plan(self.config.trainer, per_epoch).train_steps

    def occurrences(self, example: int, until: int) -> list[JsonObject]:
        """Returns where an example is in the steps from 1 to `until`, in ascending order.

        Raises RunnerError if these are more epochs than a config allows.
        """
        per_epoch = self._require_examples(0).order.steps_per_epoch
        if until > per_epoch * MAX_EPOCHS:
            raise RunnerError(
                f"{until:,} steps are {until / per_epoch:,.0f} epochs, allowed: at most "
                f"{MAX_EPOCHS:,.0f}\nset --until to at most {int(per_epoch * MAX_EPOCHS)}",
                path="--until",
                code="out-of-range",
            )
        occurrences = []
        ends = [first - 1 for first, _ in self.parts[1:]] + [until]
        for (first, recoveries), end in zip(self.parts, ends, strict=True):
            stop = min(end, until)
            if first <= stop:
                order = self._require_examples(recoveries).order
                occurrences += _describe_occurrences(order.occurrences(example, first - 1, stop))
        return occurrences

    def describe_example(self, step: int, row: int) -> JsonObject:
        """Returns what is known about the example in a row of a step."""
        examples = self._require_examples(self.recoveries(step))
        return examples.describe(examples.order.rows(step - 1), np.array([row]))[0]

    def _require_examples(self, recoveries: int) -> TrainingExamples:
        examples = self.examples(recoveries)
        assert examples is not None, "the order is only known by running the input pipeline"
        return examples

    def _load(self, recoveries: int) -> TrainingExamples | None:
        if self.config.is_official:
            return None
        section = self._section(recoveries)
        data = self.config.data
        try:
            examples: TrainingExamples | None = data.training_examples(
                section, str(self.run) if self.run else None
            )
        except DataError as error:
            setting = data.setting_of_error("train_data", error)
            raise SettingError(f"task.{setting}", str(error), code=error.code) from error
        return examples


def _describe_occurrences(part: Occurrences) -> list[JsonObject]:
    columns = (part.steps, part.epochs, part.places, part.rows)
    return [
        {"step": step + 1, "epoch": epoch + 1, "position": place, "row": row}
        for step, epoch, place, row in zip(*(c.tolist() for c in columns), strict=True)
    ]


def _row_numbers(rows: Rows, row: int) -> JsonObject:
    example = int(rows.examples[row])
    return {
        "row": row,
        "example": None if example < 0 else example,
        "epoch": int(rows.epochs[row]) + 1,
        "position": int(rows.places[row]),
    }
