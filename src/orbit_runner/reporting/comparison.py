"""Compares runs: what differs in their settings, results, speed and weights.

Does not import TensorFlow, and does not build the configs, so that runs of a task that is not
installed can be compared.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orbit_runner.config.serialize import inline_yaml
from orbit_runner.reporting.document import Chart, Section, Series, Table
from orbit_runner.reporting.numbers import duration_or_dash, number_or_dash
from orbit_runner.reporting.run_data import NON_METRICS, RunData, read_run
from orbit_runner.run_directory.branch import last_common_step
from orbit_runner.run_directory.metric_records import SPEED, SPLITS, SYSTEM, UPDATE_RATIO, WATCH

# Settings that only describe an experiment.
_IGNORED_SETTINGS = ("description",)


@dataclasses.dataclass(frozen=True)
class RunComparison:
    """Several runs side by side. The first one is the reference for the weights."""

    runs: Sequence[RunData]

    @property
    def names(self) -> list[str]:
        """The short names of the runs."""
        return [run.name for run in self.runs]

    def settings(self) -> dict[str, list[Any]]:
        """Returns the settings that differ: dotted path to the value of each run.

        The value is None if a run does not have the setting.
        """
        return differing_values([run.settings for run in self.runs], ignored=_IGNORED_SETTINGS)

    def software(self) -> dict[str, list[Any]]:
        """Returns versions and revisions that differ."""
        return differing_values([run.software for run in self.runs])

    def metrics(self) -> dict[str, list[float | None]]:
        """Returns each metric of the last evaluation, and of the last training record."""
        names = dict.fromkeys(name for run in self.runs for name in run.summary.metrics)
        return {
            name: [run.summary.metrics.get(name) for run in self.runs]
            for name in names
            if name not in NON_METRICS
        }

    def best(self) -> dict[str, list[float | None]]:
        """Returns each metric of the best evaluation; empty if no run keeps it."""
        names = dict.fromkeys(name for run in self.runs for name in run.summary.best)
        return {
            name: [run.summary.best.get(name) for run in self.runs]
            for name in names
            if name not in NON_METRICS
        }

    def curve_keys(self) -> list[tuple[str, str]]:
        """Returns (split, metric) of every curve: validation first, speed last.

        Curves of single layers and of the machine are left out.
        """
        keys = dict.fromkeys(key for run in self.runs for key in run.curves)
        wanted = [key for key in keys if key[1] != "validation_examples"]
        wanted = [key for key in wanted if key != ("validation", SPEED)]
        wanted = [key for key in wanted if not key[1].startswith((SYSTEM, UPDATE_RATIO))]
        return sorted(wanted, key=lambda key: (key[0] != "validation", key[1] in NON_METRICS))

    def main_curve_keys(self) -> list[tuple[str, str]]:
        """Returns the curves to draw where there is little room."""
        keys = self.curve_keys()
        evaluated = [key for key in keys if key[0] == "validation"][:3]
        return evaluated + [key for key in keys if key == ("train", "training_loss")]

    def curve(self, key: tuple[str, str]) -> dict[str, Mapping[int, float]]:
        """Returns the values of a metric by name of the run and step."""
        return {run.name: run.curves[key] for run in self.runs if key in run.curves}

    def own_curve(self, key: tuple[str, str]) -> dict[str, Mapping[int, float]]:
        """Returns the values of a metric without those in common with an earlier run.

        The last common value is kept, so that the curve of a branch begins on that of its parent.
        """
        starts = dict(zip(self.names, self.common_steps(), strict=True))
        return {
            name: _drop_common_points(points, starts[name])
            for name, points in self.curve(key).items()
        }

    def common_steps(self) -> list[int | None]:
        """Returns the last step that each run has in common with an earlier one, if any."""
        found = []
        for index, run in enumerate(self.runs):
            steps = [last_common_step(run.ancestry, other.ancestry) for other in self.runs[:index]]
            found.append(max((step for step in steps if step is not None), default=None))
        return found

    def branches(self) -> list[str]:
        """Returns where each run branched off, such as `step 45 of a`; "" for other runs."""
        names = {run.summary.path.resolve(): run.name for run in self.runs}
        found = []
        for summary in (run.summary for run in self.runs):
            parent = summary.parent
            if parent is None or summary.branch_step is None:
                found.append("")
                continue
            name = names.get(parent.resolve(), os.path.relpath(parent))
            found.append(f"step {summary.branch_step:,} of {name}")
        return found

    def title(self, key: tuple[str, str]) -> str:
        """Returns the title of a curve."""
        split, name = key
        if name == SPEED:
            return "training steps per second"
        words = name.removeprefix(WATCH).replace("_", " ")
        ambiguous = all((one, name) in self.curve_keys() for one in SPLITS)
        return f"{'training' if split == 'train' else split} {words}" if ambiguous else words

    def weights(self) -> list[str]:
        """Returns how the weights of each run compare with those of the first run."""
        return ["", *(_compare_weights(self.runs[0], other) for other in self.runs[1:])]


def comparison_section(comparison: RunComparison, curves: Sequence[tuple[str, str]]) -> Section:
    """Returns the table of a comparison, and the charts of some curves (split and metric)."""
    blocks: list[tuple[str, list[list[str]]]] = [
        ("", _summary_rows(comparison)),
        ("settings that differ", _rows(comparison.settings(), format_value)),
        ("software that differs", _rows(comparison.software(), format_value)),
        ("last evaluation and last training record", _rows(comparison.metrics(), number_or_dash)),
        ("best evaluation", _rows(comparison.best(), number_or_dash)),
    ]
    rows: list[list[str]] = []
    for title, block in blocks:
        rows += [[title], *block] if title and block else block
    steps = zip(comparison.names, comparison.common_steps(), strict=True)
    marks = {step: f"{name} branches off" for name, step in steps if step is not None}
    charts = [
        Chart(
            comparison.title(key),
            [
                Series(name, points, comparison.names.index(name))
                for name, points in comparison.own_curve(key).items()
            ],
            marks=marks,
        )
        for key in curves
    ]
    table = Table(rows, head=["", *comparison.names], keys=True)
    return Section("", [table, *charts])


def _rows(values: Mapping[str, Sequence[Any]], text: Callable[[Any], str]) -> list[list[str]]:
    return [[name, *map(text, row)] for name, row in values.items()]


def _summary_rows(comparison: RunComparison) -> list[list[str]]:
    """Returns what every run has: status, step, time, speed, devices and weights."""
    columns: list[tuple[str, Callable[[RunData], str]]] = [
        ("experiment", lambda run: run.experiment or "-"),
        ("status", lambda run: run.summary.status),
        ("step", lambda run: f"{run.summary.step:,}"),
        ("wall time", lambda run: duration_or_dash(run.seconds)),
        ("steps/s, median", lambda run: number_or_dash(run.steps_per_second)),
        ("devices", lambda run: run.devices or "-"),
        ("weights", lambda run: run.weights[:12] or "-"),
    ]
    rows = [[name, *map(text, comparison.runs)] for name, text in columns]
    branches = comparison.branches()
    if any(branches):
        rows.insert(1, ["branch", *(text or "-" for text in branches)])
    return [*rows, ["", *comparison.weights()]]


def compare(paths: Sequence[Path]) -> RunComparison:
    """Returns the comparison of several run directories."""
    names = short_names(paths)
    return RunComparison([read_run(path, name) for path, name in zip(paths, names, strict=True)])


def short_names(paths: Sequence[Path]) -> list[str]:
    """Returns the paths without the directories that all have in common."""
    texts = [os.path.normpath(path) for path in paths]
    if len(texts) < 2:
        return [os.path.basename(os.path.abspath(text)) for text in texts]
    try:
        common = os.path.commonpath(texts)
    except ValueError:  # Absolute and relative paths.
        return texts
    return [os.path.relpath(text, common) if common else text for text in texts]


def _drop_common_points(points: Mapping[int, float], step: int | None) -> Mapping[int, float]:
    if step is None:
        return points
    last = max((one for one in points if one <= step), default=step)
    return {one: value for one, value in points.items() if one >= last}


def format_value(value: Any) -> str:
    """Returns a setting on one line; `-` if the run does not have it."""
    return "-" if value is None else inline_yaml(value)


def differing_values(
    all_values: Sequence[Mapping[str, Any]], ignored: Sequence[str] = ()
) -> dict[str, list[Any]]:
    """Returns the values that differ, by dotted path; None where one is missing."""
    paths = dict.fromkeys(path for values in all_values for path in values)
    rows = {path: [values.get(path) for values in all_values] for path in paths}
    return {
        path: row
        for path, row in rows.items()
        if path not in ignored and any(value != row[0] for value in row[1:])
    }


def _compare_weights(first: RunData, other: RunData) -> str:
    if first.weights and first.weights == other.weights:
        return f"equal to {first.name}"
    mine, theirs = first.history.fingerprints, other.history.fingerprints
    common = sorted(set(mine) & set(theirs))
    if not common:
        return "no checkpoint of the same step"
    differing = [step for step in common if mine[step].weights != theirs[step].weights]
    if not differing:
        return f"equal to {first.name} at step {common[-1]:,}"
    equal = [step for step in common if step < differing[0]]
    before = f", equal at step {equal[-1]:,}" if equal else ""
    branch = last_common_step(first.ancestry, other.ancestry)
    if branch is not None and max(equal, default=0) < branch < differing[0]:
        before = f", common up to step {branch:,}"
    return f"differ from {first.name} at step {differing[0]:,}{before}"
