"""Compares runs: what differs in their settings, results, speed and weights.

Does not import TensorFlow, and does not build the configs, so that runs of a task that is not
installed can be compared.
"""

from __future__ import annotations

import dataclasses
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orbit_runner.config.serialize import inline
from orbit_runner.run_directory.config_values import read_settings
from orbit_runner.run_directory.history import RunHistory, read_history
from orbit_runner.run_directory.metric_records import SPLITS, Curves, read_curves
from orbit_runner.run_directory.run_summary import RunSummary, attempt_seconds, read_summary

# Describe an experiment, but are no settings of it.
_LEFT_OUT = ("description",)
_SPEED = "steps_per_second"
_NO_METRICS = (_SPEED, "validation_examples", "tflops_per_second", "mfu")


@dataclasses.dataclass(frozen=True)
class ComparedRun:
    """A run and what is compared of it."""

    name: str  # A short name that differs from those of the other runs.
    summary: RunSummary
    settings: Mapping[str, Any]
    curves: Curves
    history: RunHistory

    @property
    def seconds(self) -> float | None:
        """The wall time of all starts that ended, in seconds; None if no start ended."""
        found = [seconds for one in self.history.attempts if (seconds := attempt_seconds(one))]
        return sum(found) if found else None

    @property
    def steps_per_second(self) -> float | None:
        """The median of the training records without the first one, which includes tracing."""
        values = list(self.curves.get(("train", _SPEED), {}).values())
        finite = [value for value in values[1:] or values if math.isfinite(value)]
        return statistics.median(finite) if finite else None

    @property
    def weights(self) -> str:
        """SHA-256 of the weights: those at the end, or of the newest checkpoint."""
        prints = self.history.fingerprints
        return self.summary.weights or (prints[max(prints)].weights if prints else "")

    @property
    def devices(self) -> str:
        """The devices of the last start."""
        last = self.history.attempts[-1] if self.history.attempts else {}
        found = last.get("devices")
        if not isinstance(found, dict):
            return ""
        gpus = [str(name) for name in found.get("gpus") or () if name]
        threads = found.get("cpu_cores", "?")
        return ", ".join(gpus) or f"CPU, {threads} thread{'' if threads == 1 else 's'}"

    @property
    def software(self) -> Mapping[str, Any]:
        """Versions of packages and the revision of the code at the last start."""
        last = self.history.attempts[-1] if self.history.attempts else {}
        found = last.get("software")
        return found if isinstance(found, dict) else {}


@dataclasses.dataclass(frozen=True)
class RunComparison:
    """Several runs side by side. The first one is the reference for the weights."""

    runs: Sequence[ComparedRun]

    @property
    def names(self) -> list[str]:
        """The short names of the runs."""
        return [run.name for run in self.runs]

    def settings(self) -> dict[str, list[Any]]:
        """Returns the settings that differ: dotted path to the value of each run.

        The value is None if a run does not have the setting.
        """
        return _differing([run.settings for run in self.runs], without=_LEFT_OUT)

    def software(self) -> dict[str, list[Any]]:
        """Returns versions and revisions that differ."""
        return _differing([run.software for run in self.runs])

    def metrics(self) -> dict[str, list[float | None]]:
        """Returns each metric of the last evaluation, and of the last training record."""
        names = dict.fromkeys(name for run in self.runs for name in run.summary.metrics)
        return {
            name: [run.summary.metrics.get(name) for run in self.runs]
            for name in names
            if name not in _NO_METRICS
        }

    def best(self) -> dict[str, list[float | None]]:
        """Returns each metric of the best evaluation; empty if no run keeps it."""
        names = dict.fromkeys(name for run in self.runs for name in run.summary.best)
        return {
            name: [run.summary.best.get(name) for run in self.runs]
            for name in names
            if name not in _NO_METRICS
        }

    def curve_keys(self) -> list[tuple[str, str]]:
        """Returns (split, metric) of every curve: validation first, speed last."""
        keys = dict.fromkeys(key for run in self.runs for key in run.curves)
        wanted = [key for key in keys if key[1] != "validation_examples"]
        wanted = [key for key in wanted if key != ("validation", _SPEED)]
        return sorted(wanted, key=lambda key: (key[0] != "validation", key[1] in _NO_METRICS))

    def main_curve_keys(self) -> list[tuple[str, str]]:
        """Returns the curves to draw where there is little room."""
        keys = self.curve_keys()
        evaluated = [key for key in keys if key[0] == "validation"][:3]
        return evaluated + [key for key in keys if key == ("train", "training_loss")]

    def curve(self, key: tuple[str, str]) -> dict[str, Mapping[int, float]]:
        """Returns the values of a metric by name of the run and step."""
        return {run.name: run.curves[key] for run in self.runs if key in run.curves}

    def title(self, key: tuple[str, str]) -> str:
        """Returns the title of a curve."""
        split, name = key
        if name == _SPEED:
            return "training steps per second"
        words = name.replace("_", " ")
        ambiguous = all((one, name) in self.curve_keys() for one in SPLITS)
        return f"{'training' if split == 'train' else split} {words}" if ambiguous else words

    def weights(self) -> list[str]:
        """Returns how the weights of each run compare with those of the first run."""
        return ["", *(_compare_weights(self.runs[0], other) for other in self.runs[1:])]


def compare(paths: Sequence[Path]) -> RunComparison:
    """Returns the comparison of several run directories."""
    return RunComparison([
        ComparedRun(
            name=name,
            summary=read_summary(path),
            settings=read_settings(path),
            curves=read_curves(path / "metrics.jsonl"),
            history=read_history(path),
        )
        for name, path in zip(short_names(paths), paths, strict=True)
    ])  # fmt: skip


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


def format_value(value: Any) -> str:
    """Returns a setting on one line; `-` if the run does not have it."""
    return "-" if value is None else inline(value)


def _differing(
    all_values: Sequence[Mapping[str, Any]], without: Sequence[str] = ()
) -> dict[str, list[Any]]:
    paths = dict.fromkeys(path for values in all_values for path in values)
    rows = {path: [values.get(path) for values in all_values] for path in paths}
    return {
        path: row
        for path, row in rows.items()
        if path not in without and any(value != row[0] for value in row[1:])
    }


def _compare_weights(first: ComparedRun, other: ComparedRun) -> str:
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
    return f"differ from {first.name} at step {differing[0]:,}{before}"
