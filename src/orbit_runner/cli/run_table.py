"""The table of `runner runs`: columns, metrics and settings of runs, and `--where` on them."""

from __future__ import annotations

import functools
import operator
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.parsing.yaml_files import parse_value
from orbit_runner.config.serialize import inline_yaml, short_setting_names
from orbit_runner.errors import RunnerError, nearest_name_hint, shorten
from orbit_runner.reporting.numbers import format_age, number_or_dash
from orbit_runner.run_directory.metric_records import METRIC_COMP, better_values
from orbit_runner.run_directory.run_reader import RunReader

DEFAULT_COLUMNS = ("run", "status", "progress", "metric", "age", "experiment", "changes")
_FLAG = "--where"
_EXAMPLE = "--where='accuracy > 0.98 and status == finished'"
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_NAME = re.compile(r"[\w./]+")
# A word of a condition. A quote or a bracket within a word has no meaning.
_WORD = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"\\]|\\.)*"|[][{},]|(?P<operator>[<>=!]=|[<>])|"""
    r"""(?:(?![<>=!]=|[<>])[^\s\][{},])+"""
)
_TIMES = ("age", "idle")
_NUMBER = r"(\d+(?:\.\d+)?)\s*"
_DURATION = re.compile(
    rf"(?=\d)(?:{_NUMBER}d\s*)?(?:{_NUMBER}h\s*)?(?:{_NUMBER}(?:m|min)\s*)?(?:{_NUMBER}s)?",
    re.ASCII,
)
_SECONDS = (86400.0, 3600.0, 60.0, 1.0)  # of the units, in that order

Condition = Callable[[RunReader], bool]
Value = Any  # a number, a text, a boolean, a list, or None if the run has no such value


class RunColumns:
    """Looks up values of runs by the name of a column, a metric or a setting.

    `fields` are the columns, without metrics and settings.

    Args:
        runs: The runs.
        now: The time from which ages are counted, in seconds since the epoch.
    """

    def __init__(self, runs: Sequence[RunReader], now: float | None = None) -> None:
        self._runs = runs
        self._now = time.time() if now is None else now
        self._metrics = {name for run in runs for name in (*run.metrics, *run.best)}
        self.fields: Mapping[str, Callable[[RunReader], Value]] = {
            "run": lambda run: os.path.relpath(run.path),
            "status": lambda run: run.status,
            "reason": lambda run: run.reason,
            "experiment": lambda run: run.experiment,
            "mode": lambda run: run.last_mode,
            "step": lambda run: run.step,
            "train_steps": lambda run: run.train_steps,
            "progress": lambda run: run.step / run.train_steps if run.train_steps else None,
            "metric": lambda run: run.metric(run.main_metric),
            "best_step": lambda run: run.best_step,
            "age": lambda run: None if run.started is None else self._now - run.started,
            "idle": lambda run: None if run.active is None else self._now - run.active,
            "starts": lambda run: run.starts,
            "parent": lambda run: os.path.relpath(run.branch.parent) if run.branch else None,
            "branch_step": lambda run: run.branch.step if run.branch else None,
            "seed": lambda run: run.seed,
            "weights": lambda run: run.weights,
            "changes": lambda run: _format_changes(run.changes),
        }

    @functools.cached_property
    def _settings(self) -> set[str]:
        """The dotted paths of the settings, from one run of each experiment."""
        examples = {run.experiment or run.path: run for run in self._runs}
        return {path for run in examples.values() for path in run.settings}

    @functools.cached_property
    def _split_results(self) -> Mapping[Path, Mapping[str, float]]:
        """The results of `runner evaluate --split=SPLIT` of each run, as `SPLIT.METRIC`."""
        from orbit_runner.run_directory.evaluations import split_results  # It imports the config.

        return {run.path: split_results(run.path) for run in self._runs}

    @functools.cached_property
    def _split_metrics(self) -> set[str]:
        return {name for results in self._split_results.values() for name in results}

    def _is_of_split(self, name: str) -> bool:
        is_other = name in self.fields or name in self._settings
        return not is_other and name in self._split_metrics

    def is_known(self, name: str) -> bool:
        """Returns whether a name is a column, a metric or a setting of one of the runs."""
        if name in self.fields or name in self._metrics:
            return True
        if _split_prefix(name)[0]:
            return _split_prefix(name)[1] in self._metrics
        if name in self._settings or name in self._split_metrics:
            return True
        # Reads the config of each run, as a comparison of the setting does.
        return "." in name and any(name in run.settings for run in self._runs)

    def check(self, name: str, flag: str) -> None:
        """Raises `RunnerError` if a name is unknown. `flag` is where the user wrote it."""
        if not self._runs or self.is_known(name):
            return
        known_metrics = self._metrics | self._split_metrics
        near = nearest_name_hint(name, [*self.fields, *known_metrics, *self._settings])
        metrics = ", ".join(sorted(known_metrics)) or "none"
        raise RunnerError(
            f"unknown name {name!r}{near}\n"
            f"columns: {', '.join(self.fields)}\n"
            f"metrics of these runs: {metrics}\n"
            "settings: dotted paths, such as trainer.train_steps",
            path=flag,
            code="unknown-name",
        )

    def value(self, run: RunReader, name: str) -> Value:
        """Returns a value, or None if the run has no such value."""
        if name in self.fields:
            return self.fields[name](run)
        kind, metric = _split_prefix(name)
        if kind:
            return (run.best if kind == "best" else run.metrics).get(metric)
        if name in self._metrics:
            return run.metric(name)
        if self._is_of_split(name):
            return self._split_results[run.path].get(name)
        if name in run.changes:
            return run.changes[name]
        return run.settings.get(name)

    def better_values(self, name: str) -> str:
        """Returns whether `higher` or `lower` values of a metric are better; "" if not known."""
        metric = _split_prefix(name)[1]
        if name == "metric":
            metrics = {run.main_metric for run in self._runs}
            metric = metrics.pop() if len(metrics) == 1 else ""
        if metric not in self._metrics and not self._is_of_split(name):
            return ""
        # One run of each experiment.
        keepers = {
            run.experiment or run.path: run for run in self._runs if run.best_metric == metric
        }
        return better_values(metric, [run.settings.get(METRIC_COMP) for run in keepers.values()])

    def text(self, run: RunReader, name: str) -> str:
        """Returns a value as it is shown in the table."""
        if name == "metric":
            return _format_metric(run)
        if name == "progress":
            return f"{run.step:,}" + (f"/{run.train_steps:,}" if run.train_steps else "")
        if name == "weights":
            return run.weights[:12]
        if name == "status" and run.export_problem:
            return f"{run.status}, not exported"
        value = self.value(run, name)
        if value is None:
            return "-"
        if name in _TIMES:
            return format_age(value)
        if isinstance(value, float):
            return number_or_dash(value)
        return value if isinstance(value, str) else inline_yaml(value)


def _split_prefix(name: str) -> tuple[str, str]:
    kind, dot, metric = name.partition(".")
    return (kind, metric) if dot and kind in ("best", "last") else ("", name)


def _format_changes(changes: Mapping[str, object]) -> str:
    names = short_setting_names(changes)
    return " ".join(f"{names[path]}={inline_yaml(value)}" for path, value in changes.items())


def _format_metric(run: RunReader) -> str:
    name = run.main_metric
    value = run.metric(name)
    # The value may be that of the best evaluation, and then hides what became of the run.
    mark = f" (last: {', '.join(run.non_finite_metrics)} not finite)"
    mark = mark if run.non_finite_metrics else ""
    if value is None:
        return f"-{mark}"
    at = f" at {run.best_step:,}" if name in run.best and run.best_step is not None else ""
    return f"{name} {number_or_dash(value)}{at}{mark}"


def parse_condition(text: str, columns: RunColumns) -> Condition:
    """Returns a function that tells whether a run satisfies all comparisons in a text.

    The comparisons are joined by `and`. Each compares a column, a metric or a setting with a value,
    such as `3`, `finished`, `[64, 32]` or a quoted text. A run that lacks it does not satisfy the
    comparison. Raises `RunnerError` if the text is invalid or a name is unknown.
    """
    words = [*_WORD.finditer(text)]
    ends = [n for n, word in enumerate(words) if word[0] == "and"]
    pairs = zip([0, *(end + 1 for end in ends)], [*ends, len(words)], strict=True)
    parts = [_parse_comparison(text, words[first:end], columns) for first, end in pairs]
    return lambda run: all(part(run) for part in parts)


def _parse_comparison(
    condition: str, words: Sequence[re.Match[str]], columns: RunColumns
) -> Condition:
    """Returns the function of `NAME OPERATOR VALUE`, the words of a part of a condition."""
    text = condition[words[0].start() : words[-1].end()] if words else condition
    if len(words) < 3 or not _NAME.fullmatch(words[0][0]) or not words[1]["operator"]:
        hint = "" if text == condition else "; put a text that contains `and` in quotes"
        raise _error(text, f"expected a name, one of {' '.join(_COMPARE)}, and a value{hint}")
    name, symbol = words[0][0], words[1][0]
    written = condition[words[2].start() : words[-1].end()]
    if any(word["operator"] or word[0].lower() in ("and", "or") for word in words[2:]):
        raise _error(text, f"expected one value, got {written!r}; join comparisons by `and`")
    columns.check(name, _FLAG)
    try:
        wanted: Any = parse_value(written, _FLAG)
        if name in _TIMES:
            wanted = _duration_seconds(wanted)
    except (ConfigError, TypeError, ValueError) as error:
        raise _error(text, str(error)) from None

    def is_true(run: RunReader) -> bool:
        value = columns.value(run, name)
        try:
            return value is not None and bool(_COMPARE[symbol](value, wanted))
        except TypeError:
            raise _error(text, f"cannot compare {value!r} with {wanted!r}") from None

    return is_true


def _duration_seconds(value: Any) -> float:
    """Returns a duration in seconds: of a number of them, or of a text such as `1h30m`."""
    if not isinstance(value, str):
        return float(value)
    match = _DURATION.fullmatch(value)
    if match is None:
        raise ValueError(f"got {shorten(repr(value))}, expected a duration such as 90s or 1h30m")
    numbers = (float(number or 0) for number in match.groups())
    return sum(number * unit for number, unit in zip(numbers, _SECONDS, strict=True))


def _error(text: str, reason: str) -> RunnerError:
    return RunnerError(
        f"{shorten(text)}: {reason}\nexample: {_EXAMPLE}", path=_FLAG, code="bad-syntax"
    )
