"""Compares runs: what differs in their settings, results, speed and weights.

Does not import TensorFlow, and does not build the configs, so that runs of a task that is not
installed can be compared.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from orbit_runner.compare.histories import common_steps, steps_with_other_weights
from orbit_runner.config.serialize import inline_yaml
from orbit_runner.run_directory.metric_records import (
    METRIC_COMP,
    SPEED,
    SPLITS,
    SYSTEM,
    better_values,
    metric_title,
)
from orbit_runner.run_directory.run_reader import MOST_POINTS, NON_METRICS, RunReader

# Settings that only describe an experiment.
_IGNORED_SETTINGS = ("description",)
_NON_METRICS = tuple(f".{name}" for name in NON_METRICS)
_CONFIG = "config.yaml"
# Settings that say on what a run is evaluated; if the file cannot be read, they are not known.
_EVALUATED = (
    _CONFIG,
    "task.name",
    *(f"task.validation_data.{name}" for name in ("source", "data_dir", "input_path", "split")),
)


@dataclasses.dataclass(frozen=True)
class RunComparison:
    """Several runs side by side. The first run is the reference for the weights."""

    runs: Sequence[RunReader]
    names: Sequence[str]  # Short names of the runs.

    def settings(self) -> dict[str, list[object]]:
        """Returns the settings that differ: dotted path to the value of each run.

        The value is None if a run does not have the setting.
        """
        return differing_settings([run.settings for run in self.runs], ignored=_IGNORED_SETTINGS)

    def software(self) -> dict[str, list[object]]:
        """Returns versions and revisions that differ."""
        return differing_values([run.software for run in self.runs])

    def metrics(self) -> dict[str, list[float | None]]:
        """Returns each metric of the last evaluation, and of the last training record."""
        return _by_name([run.metrics for run in self.runs])

    def best(self) -> dict[str, list[float | None]]:
        """Returns each metric of the best evaluation; empty if no run keeps it."""
        return _by_name([run.best for run in self.runs])

    def split_metrics(self) -> dict[str, list[float | None]]:
        """Returns each metric of the splits that `runner evaluate` evaluated, as `test.loss`."""
        if not any(run.directory.evaluations.is_dir() for run in self.runs):
            return {}
        from orbit_runner.run_directory.evaluations import split_results  # It imports the config.

        rows = _by_name([split_results(run.path) for run in self.runs])
        return {name: row for name, row in rows.items() if not name.endswith(_NON_METRICS)}

    @property
    def main_metric(self) -> str:
        """The metric that decides which run is the best one; "" if it is not known."""
        return next((run.main_metric for run in self.runs if run.main_metric), "")

    def better_values(self, name: str) -> str:
        """Returns whether `higher` or `lower` values of a metric are better; "" if not known."""
        rules = [run.settings.get(METRIC_COMP) for run in self.runs if run.best_metric == name]
        return better_values(name, rules)

    def winners(self, name: str, values: Sequence[float | None]) -> list[int]:
        """Returns the numbers of the runs with the best value of a metric.

        Empty if all are equal, or if the runs were evaluated on different data.
        """
        if any(path in _EVALUATED for path in self.settings()):
            return []
        finite = [v for v in values if v is not None and math.isfinite(v)]
        better = self.better_values(name)
        if not better or len({*finite}) < 2:
            return []
        best = max(finite) if better == "higher" else min(finite)
        return [index for index, value in enumerate(values) if value == best]

    def curve_keys(self) -> list[tuple[str, str]]:
        """Returns (split, metric) of every curve: validation first, speed last.

        Curves of the machine are left out.
        """
        keys = dict.fromkeys(key for run in self.runs for key in run.curves)
        wanted = [key for key in keys if key[1] != "validation_examples"]
        wanted = [key for key in wanted if key != ("validation", SPEED)]
        wanted = [key for key in wanted if not key[1].startswith(SYSTEM)]
        return sorted(wanted, key=lambda key: (key[0] != "validation", key[1] in NON_METRICS))

    def curve(self, key: tuple[str, str]) -> dict[str, Mapping[int, float]]:
        """Returns the values of a metric by name of the run and step."""
        named = zip(self.names, self.runs, strict=True)
        return {name: run.curves[key] for name, run in named if key in run.curves}

    def title(self, key: tuple[str, str]) -> str:
        """Returns the title of a curve."""
        split, name = key
        words = metric_title(name)
        ambiguous = name != SPEED and all((other, name) in self.curve_keys() for other in SPLITS)
        return f"{'training' if split == 'train' else split} {words}" if ambiguous else words

    def weights(self) -> list[str]:
        """Returns how the weights of each run compare with those of the first run."""
        first, *others = self.runs
        return ["", *(_compare_weights(first, self.names[0], other) for other in others)]


def compare(paths: Sequence[Path], most_points: int | None = MOST_POINTS) -> RunComparison:
    """Returns the comparison of several run directories; see `RunReader`."""
    runs = [RunReader(path, most_points) for path in paths]
    return RunComparison(runs, short_names(paths))


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


def _by_name(all_values: Sequence[Mapping[str, float]]) -> dict[str, list[float | None]]:
    names = dict.fromkeys(name for values in all_values for name in values)
    return {
        name: [values.get(name) for values in all_values]
        for name in names
        if name not in NON_METRICS
    }


def format_value(value: object) -> str:
    """Returns a setting on one line; `-` if the run does not have it."""
    return "-" if value is None else inline_yaml(value)


def differing_values(
    all_values: Sequence[Mapping[str, object]], ignored: Sequence[str] = ()
) -> dict[str, list[object]]:
    """Returns the values that differ, by dotted path; None where a value is missing."""
    paths = dict.fromkeys(path for values in all_values for path in values)
    rows = {path: [values.get(path) for values in all_values] for path in paths}
    return {
        path: row
        for path, row in rows.items()
        if path not in ignored and any(value != row[0] for value in row[1:])
    }


def differing_settings(
    all_settings: Sequence[Mapping[str, object]], ignored: Sequence[str] = ()
) -> dict[str, list[object]]:
    """Returns the settings that differ, by dotted path; None where a run does not have one.

    Runs without settings, whose file cannot be read, are not compared, and are named.
    """
    readable = [settings for settings in all_settings if settings]
    rows = {
        path: [settings.get(path) for settings in all_settings]
        for path in differing_values(readable, ignored)
    }
    if len(readable) < len(all_settings):
        rows[_CONFIG] = [None if settings else "cannot be read" for settings in all_settings]
    return rows


def has_equal_weights(first: RunReader, other: RunReader) -> bool:
    """Returns whether two runs have the same weights at the end, or in the newest checkpoint."""
    return bool(first.newest_weights) and first.newest_weights == other.newest_weights


def _compare_weights(first: RunReader, name: str, other: RunReader) -> str:
    if has_equal_weights(first, other):
        return f"equal to {name}"
    common = common_steps(first, other)
    if not common:
        return "no checkpoint of the same step"
    differing = steps_with_other_weights(first, other, common)
    if not differing:
        return f"equal to {name} at step {common[-1]:,}"
    equal = [step for step in common if step < differing[0]]
    before = f", equal at step {equal[-1]:,}" if equal else ""
    return f"differ from {name} at step {differing[0]:,}{before}"
