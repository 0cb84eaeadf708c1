"""Runs as objects: `load` and `runs` read them from their directories, and `run` returns one."""

from __future__ import annotations

import base64
import dataclasses
import functools
import math
import numbers
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from orbit_runner.checkpoint.latest_checkpoint import (
    AVERAGE,
    BEST,
    NEWEST,
    choose_checkpoint,
    choose_weights,
)
from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.data.source_cache import source_cache_scope
from orbit_runner.distribute.tf_environment import prepare_environment
from orbit_runner.errors import RunnerError, nearest_name_hint, python_error
from orbit_runner.jobs.gin_bindings import bind_gin, restored_gin_scope
from orbit_runner.jobs.preflight import setting_error_scope
from orbit_runner.reporting.document import Table
from orbit_runner.reporting.html import table_html
from orbit_runner.reporting.numbers import format_number, number_or_dash
from orbit_runner.reporting.report import metric_charts
from orbit_runner.reporting.report_writer import write_report
from orbit_runner.reporting.svg import draw_charts, escape
from orbit_runner.run_directory.config import resolve_run
from orbit_runner.run_directory.metric_records import SPEED, SYSTEM, Curves, is_result
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.run_directory.run_reader import (
    BEST_STEP,
    NON_METRICS,
    RunReader,
    find_runs,
    require_directory,
)
from orbit_runner.tasks.keras.passed_objects import passed_functions_scope
from orbit_runner.utils.files import write_atomically
from orbit_runner.utils.garbage_collection import paused_collection_scope
from orbit_runner.utils.log import note
from orbit_runner.utils.text_table import table_lines

if TYPE_CHECKING:
    import keras
    import pandas as pd
    import tf_keras

_TRAINING = "training_"
_LEARNING_RATE = "learning_rate"
_OF_TRAINING = (_LEARNING_RATE, *NON_METRICS)
_LAST = "last"
_MOST_METRICS = 4  # in the text of a run
_MOST_ROWS = 30  # in the text of a list of runs
_TEXT_COLUMNS = 2  # of a list of runs: name and status
_DIGITS = 16  # of a fingerprint
# A notebook aligns all cells to the right, and shows two spaces as one.
_TEXT_STYLE = "text-align:left;white-space:pre-wrap"
_NUMBER_STYLE = "text-align:right"


class History(Mapping[str, Sequence[float]]):
    """The recorded values of each metric, by name: `history["accuracy"]` is a list of numbers.

    Values of evaluations have the names of their metrics, such as `accuracy` and `validation_loss`.
    Those of training records begin with `training_`: `training_loss`, `training_accuracy`. A value
    that is NaN or infinite is NaN.

    Attributes:
        curves: The values by step, by split (`train` or `validation`) and metric.
    """

    def __init__(self, curves: Curves) -> None:
        self.curves = curves
        self._points = {
            _column(split, name): points
            for (split, name), points in sorted(
                curves.items(), key=lambda item: item[0][0] != "validation"
            )
            if (split, name) != ("validation", SPEED)
        }

    def __getitem__(self, name: str) -> list[float]:
        if name not in self._points:
            raise KeyError(f"{name!r} is not recorded{nearest_name_hint(name, self._points)}")
        return [*self._points[name].values()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._points)

    def __len__(self) -> int:
        return len(self._points)

    def __repr__(self) -> str:
        counts = (f"{name}: {len(points)}" for name, points in self._points.items())
        return f"History({', '.join(counts)})"

    def steps(self, name: str) -> list[int]:
        """Returns the steps at which a metric was recorded, in the order of its values.

        Args:
            name: The name of the metric.
        """
        self[name]
        return [*self._points[name]]

    def to_pandas(self) -> pd.DataFrame:
        """Returns a `pandas.DataFrame` with a row for each step and a column for each metric.

        A metric that was not recorded at a step is NaN.
        """
        frame = _pandas().DataFrame(self._points)
        frame.index.name = "step"
        return frame.sort_index()

    def plot(self) -> Plot:
        """Returns charts of the metrics, with training and validation in the same chart.

        A learning rate that does not change has no chart.
        """
        curves = {
            (split, name): points
            for (split, name), points in self.curves.items()
            if not name.startswith(SYSTEM)
            and name not in NON_METRICS
            and not (name == _LEARNING_RATE and len({*points.values()}) == 1)
        }
        return Plot(draw_charts(metric_charts(curves)))


def _column(split: str, name: str) -> str:
    is_of_model = is_result(name) and name not in _OF_TRAINING and not name.startswith(_TRAINING)
    return f"{_TRAINING}{name}" if split == "train" and is_of_model else name


class Plot:
    """Charts as an image, which a notebook displays.

    Attributes:
        svg: The image, as the text of an SVG file.
    """

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the image to an SVG file.

        Args:
            path: The path of the file.
        """
        write_atomically(Path(path).expanduser(), self.svg)

    def __repr__(self) -> str:
        return f"Plot: an SVG image of {len(self.svg):,} characters; save(path) writes it"

    def _repr_svg_(self) -> str:
        return self.svg


class RunBase:
    """What `RunResult` and `SavedRun` have in common."""

    model_dir: Path
    status: str
    step: int
    metrics: Mapping[str, float]
    best: Mapping[str, Any]
    weights: str
    inexact: Sequence[str]
    history: History

    @property
    def name(self) -> str:
        """The path of the run directory, relative to the current directory."""
        return os.path.relpath(self.model_dir)

    @property
    def report(self) -> Path:
        """The path of `report.html`, which is written if it does not exist."""
        path = RunDirectory(self.model_dir).report
        if not path.is_file():
            write_report(self.model_dir, path)
        return path

    @functools.cached_property
    def config(self) -> ExperimentConfig:
        """The settings of the run, from `config.yaml`."""
        return self._resolved.config

    @functools.cached_property
    def _resolved(self) -> ResolvedConfig:
        try:
            return resolve_run(self.model_dir)
        except RunnerError as error:
            raise python_error(error) from None

    def plot(self) -> Plot:
        """Returns charts of the metrics by step, which a notebook displays."""
        return self.history.plot()

    def _rows(self) -> Iterator[tuple[str, str]]:
        """Yields what is shown of the run, at most four rows: name and text."""
        numbers = _metric_texts(self.metrics)
        if not numbers and _TRAINING + "loss" in self.history:
            numbers = [f"training_loss {format_number(self.history[_TRAINING + 'loss'][-1])}"]
        yield "metrics", "  ".join(numbers) or "none"
        if self.best:
            best = _metric_texts(
                {name: value for name, value in self.best.items() if name != BEST_STEP}
            )
            yield "best", f"{'  '.join(best)}  at step {self.best.get(BEST_STEP, 0):,}"
        yield "step", f"{self.step:,}, {self.status}"
        if self.weights:
            problem = ", not reproducible: see inexact" if self.inexact else ""
            yield "weights", f"sha256 {self.weights[:_DIGITS]}…{problem}"

    def __repr__(self) -> str:
        lines = table_lines(self._rows(), indent="  ")
        return "\n".join([f"{type(self).__name__} {self.name}", *lines])

    def _repr_html_(self) -> str:
        svg = base64.b64encode(self.plot().svg.encode()).decode()
        image = f'<img alt="curves" style="max-width:100%" src="data:image/svg+xml;base64,{svg}">'
        table = _notebook_table(Table([*self._rows(), ("directory", self.name)]))
        return f"<b>{escape(type(self).__name__)}</b>{table}{image if self.history else ''}"


def _notebook_table(table: Table) -> str:
    """Returns a table with inline styles, because a style sheet would change the whole notebook."""

    def add_style(tag: re.Match[str]) -> str:
        style = _NUMBER_STYLE if "class=number" in tag[0] else _TEXT_STYLE
        return f'{tag[1]} style="{style}">'

    return re.sub(r"(<t[hd]\b[^>]*)>", add_style, table_html(table))


def _metric_texts(metrics: Mapping[str, float]) -> list[str]:
    names = [name for name in metrics if name not in _OF_TRAINING]
    more = ["…"] if names[_MOST_METRICS:] else []
    return [*(f"{name} {format_number(metrics[name])}" for name in names[:_MOST_METRICS]), *more]


@dataclasses.dataclass(frozen=True, repr=False)
class SavedRun(RunBase):
    """A run in a run directory, as it was when it was read. See `load` and `runs`.

    Attributes:
        model_dir: The run directory.
        status: `running`, `finished`, `stopped`, `diverged`, `preempted`, `interrupted`, `failed`
            or `lost`.
        reason: Why the run failed, diverged or stopped; "" otherwise.
        experiment: The name of the experiment.
        step: The last recorded step.
        train_steps: The step at which the run ends; None if it is not known.
        metrics: The metrics of the last evaluation, and those that only training records have.
        best: The metrics of the best evaluation, and its step as `best_ckpt_global_step`; empty if
            the best checkpoint is not kept.
        changes: The settings that override the experiment file, by dotted path; for a run of
            `orbit_runner.run`, all that its arguments set.
        seed: The random seed; None if it is not known.
        weights: The SHA-256 of the final weights; "" if the run is not finished.
        inexact: Why the run may not be reproducible; empty if it is.
    """

    model_dir: Path
    status: str
    reason: str
    experiment: str
    step: int
    train_steps: int | None
    metrics: Mapping[str, float]
    best: Mapping[str, Any]
    changes: Mapping[str, Any]
    seed: int | None
    weights: str
    inexact: Sequence[str]

    @functools.cached_property
    def history(self) -> History:  # type: ignore[override]
        """The values of each metric."""
        return History(RunReader(self.model_dir).curves)

    def model(self, checkpoint: str | int = _LAST) -> tf_keras.Model | keras.Model:
        """Builds the model and restores trained weights. Imports TensorFlow.

        If the run keeps a moving average of the weights, the model has the average.

        Args:
            checkpoint: `last`, `best`, or the step of a checkpoint. The best one exists if the run
                keeps it (`trainer.best_checkpoint_export_subdir`).

        Returns:
            The model.

        Raises:
            RunnerError: There is no such checkpoint, it is damaged, or the function that builds the
                model is not found.
        """
        try:
            return self._load(_requested(checkpoint))
        except RunnerError as error:
            raise python_error(error) from None

    def _load(self, requested: str) -> tf_keras.Model | keras.Model:
        resolved = self._resolved
        trainer = resolved.config.trainer
        choice = choose_checkpoint(
            self.model_dir, requested, trainer.best_checkpoint_export_subdir, note
        )
        averages = resolved.config.averages_weights
        weights = choose_weights(None, averages=averages, choice=choice)
        record = choice.record()
        prepare_environment(resolved.config.runtime)
        with paused_collection_scope():
            from orbit_runner.determinism.numerics import restored_process_scope
            from orbit_runner.serving.loader import load_scope, make_task
        with (
            source_cache_scope(),
            passed_functions_scope(record.code),
            setting_error_scope(resolved),
            restored_process_scope(),
            restored_gin_scope(resolved),
        ):
            bind_gin(resolved)
            task = make_task(resolved.config, self.model_dir, num_gpus=-1)
            with load_scope(
                resolved.config, task, choice, weights, needs_signatures=False
            ) as loaded:
                values = loaded.model.get_weights() if weights == AVERAGE else None
            # After the block, the model has the plain weights.
            if values is not None:
                loaded.model.set_weights(values)
        model: tf_keras.Model | keras.Model
        model = getattr(loaded.model, "keras_3_model", loaded.model)
        return model


def _requested(checkpoint: str | int) -> str:
    """Returns the value of `--checkpoint`."""
    if checkpoint == _LAST:
        return NEWEST
    is_number = isinstance(checkpoint, numbers.Integral) and not isinstance(checkpoint, bool)
    if checkpoint != BEST and not (is_number and int(checkpoint) >= 0):
        raise RunnerError(
            f"got {checkpoint!r}, allowed: 'last', 'best' or a step",
            path="checkpoint",
            code="not-allowed",
        )
    return str(checkpoint)


class Runs(Sequence[SavedRun]):
    """The runs of a directory, the newest first."""

    def __init__(self, saved_runs: Sequence[SavedRun]) -> None:
        self._runs = tuple(saved_runs)

    @overload
    def __getitem__(self, index: int) -> SavedRun: ...

    @overload
    def __getitem__(self, index: slice) -> Runs: ...

    def __getitem__(self, index: int | slice) -> SavedRun | Runs:
        return Runs(self._runs[index]) if isinstance(index, slice) else self._runs[index]

    def __len__(self) -> int:
        return len(self._runs)

    def to_pandas(self) -> pd.DataFrame:
        """Returns a `pandas.DataFrame` with a row for each run, by name.

        The columns are status, experiment, steps and seed, then the metrics, those of the best
        evaluation if the run keeps it, then the settings in `changes`.
        """
        rows = [
            {
                "status": run.status,
                "experiment": run.experiment,
                "step": run.step,
                "train_steps": run.train_steps,
                "seed": run.seed,
                **_shown_metrics(run),
                **run.changes,
            }
            for run in self._runs
        ]
        frame = _pandas().DataFrame(rows, index=[run.name for run in self._runs])
        frame.index.name = "run"
        return frame

    def _table(self) -> tuple[list[str], list[list[str]]]:
        runs = self._runs[:_MOST_ROWS]
        metrics = list(dict.fromkeys(name for run in runs for name in _shown_metrics(run)))
        rows = [
            [
                run.name,
                run.status,
                f"{run.step:,}" + (f"/{run.train_steps:,}" if run.train_steps else ""),
                *(
                    number_or_dash(_shown_metrics(run).get(name))
                    for name in metrics[:_MOST_METRICS]
                ),
            ]
            for run in runs
        ]
        return ["run", "status", "step", *metrics[:_MOST_METRICS]], rows

    def _more(self) -> str:
        more = len(self) - _MOST_ROWS
        return f"… and {more} more" if more > 0 else ""

    def __repr__(self) -> str:
        head, rows = self._table()
        lines = table_lines([head, *rows]) if rows else ["no runs"]
        return "\n".join(filter(None, [*lines, self._more()]))

    def _repr_html_(self) -> str:
        head, rows = self._table()
        if not rows:
            return "no runs"
        table = Table(rows, head=head, right=range(_TEXT_COLUMNS, len(head)))
        return f"{_notebook_table(table)}{self._more()}"


def _shown_metrics(run: SavedRun) -> dict[str, float]:
    values = {**run.metrics, **run.best}
    hidden = (*_OF_TRAINING, BEST_STEP)
    return {name: value for name, value in values.items() if name not in hidden}


def load(model_dir: str | os.PathLike[str]) -> SavedRun:
    """Reads a run from its directory. Does not import TensorFlow.

    Args:
        model_dir: The run directory.

    Returns:
        The run, as it is now.

    Raises:
        RunnerError: The directory contains no run.
    """
    path = directory_of(model_dir, "model_dir")
    if next(find_runs(path), None) != path:
        raise _no_run_error(path)
    return _saved_run(RunReader(path))


def runs(directory: str | os.PathLike[str] = "runs") -> Runs:
    """Reads all runs in a directory, as `runner runs` does. Does not import TensorFlow.

    Args:
        directory: The directory that contains the runs, at any depth; it may be a run itself.

    Returns:
        The runs, the newest first.

    Raises:
        RunnerError: The directory does not exist.
    """
    path = require_directory(directory_of(directory, "directory"), "directory")
    readers = map(RunReader, find_runs(path, inside_runs=True))
    newest_first = sorted(readers, key=lambda reader: -(reader.started or -math.inf))
    return Runs([_saved_run(reader) for reader in newest_first])


def directory_of(path: object, argument: str) -> Path:
    """Returns the directory that an argument names. Raises `RunnerError` if it names none."""
    try:
        text = os.fspath(path)  # type: ignore[call-overload]
        if not isinstance(text, str) or not text or "\0" in text:
            raise ValueError
        return Path(text).expanduser()
    except (TypeError, ValueError, RuntimeError):  # Of a user without a home directory, too.
        raise RunnerError(
            f"got {path!r}, expected the path of a directory", path=argument, code="bad-path"
        ) from None


def _no_run_error(path: Path) -> RunnerError:
    problem = "does not exist" if not path.exists() else "is no run"
    return RunnerError(
        f"{path} {problem}\norbit_runner.runs(directory) lists the runs in a directory",
        path="model_dir",
        code="not-a-run",
    )


def _saved_run(reader: RunReader) -> SavedRun:
    step = {} if reader.best_step is None else {BEST_STEP: reader.best_step}
    return SavedRun(
        model_dir=reader.path,
        status=reader.status,
        reason=reader.reason,
        experiment=reader.experiment,
        step=reader.step,
        train_steps=reader.train_steps,
        metrics=reader.metrics,
        best={**reader.best, **step} if reader.best else {},
        changes=reader.changes,
        seed=reader.seed,
        weights=reader.weights,
        inexact=reader.inexact,
    )


def _pandas() -> Any:
    try:
        import pandas as pd
    except ImportError:
        raise RunnerError(
            "needs the package 'pandas', which is not installed",
            path="to_pandas",
            code="missing-package",
        ) from None
    return pd
