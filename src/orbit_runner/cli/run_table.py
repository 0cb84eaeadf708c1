"""The table of `runner runs`: columns, metrics and settings of runs, and `--where` on them."""

from __future__ import annotations

import ast
import functools
import operator
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orbit_runner.config.serialize import inline_yaml, short_setting_names
from orbit_runner.errors import RunnerError, nearest_name_hint, shorten
from orbit_runner.reporting.numbers import format_age, number_or_dash
from orbit_runner.run_directory.config import read_setting, read_settings
from orbit_runner.run_directory.metric_records import METRIC_COMP, better_values
from orbit_runner.run_directory.run_summary import RunSummary

DEFAULT_COLUMNS = ("run", "status", "progress", "metric", "age", "experiment", "changes")
_FLAG = "--where"
_EXAMPLE = "--where='accuracy > 0.98 and status == finished'"
_MAX_LENGTH = 2000
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
_DURATION = re.compile(r"(?<![\w.'\"])(\d+(?:\.\d+)?)\s?(s|min|h|d)\b(?!['\"])")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

Condition = Callable[[RunSummary], bool]
Value = Any  # a number, a text, a boolean, a list, or None if the run has no such value


class RunColumns:
    """Looks up values of runs by the name of a column, a metric or a setting.

    `fields` are the columns, without metrics and settings.

    Args:
        runs: The runs.
        now: The time from which ages are counted, in seconds since the epoch.
    """

    def __init__(self, runs: Sequence[RunSummary], now: float | None = None) -> None:
        self._runs = runs
        self._now = time.time() if now is None else now
        self._metrics = {name for run in runs for name in (*run.metrics, *run.best)}
        self.fields: Mapping[str, Callable[[RunSummary], Value]] = {
            "run": lambda run: os.path.relpath(run.path),
            "status": lambda run: run.status,
            "reason": lambda run: run.reason,
            "experiment": lambda run: run.experiment,
            "mode": lambda run: run.mode,
            "step": lambda run: run.step,
            "train_steps": lambda run: run.train_steps,
            "progress": lambda run: run.step / run.train_steps if run.train_steps else None,
            "metric": lambda run: run.metric(run.main_metric),
            "best_step": lambda run: run.best_step,
            "age": lambda run: None if run.started is None else self._now - run.started,
            "idle": lambda run: None if run.active is None else self._now - run.active,
            "starts": lambda run: run.starts,
            "parent": lambda run: os.path.relpath(run.parent) if run.parent else None,
            "branch_step": lambda run: run.branch_step,
            "seed": lambda run: run.seed,
            "weights": lambda run: run.weights,
            "changes": lambda run: _format_changes(run.changes),
        }

    @functools.cached_property
    def _settings(self) -> set[str]:
        """The dotted paths of the settings, from one run of each experiment."""
        examples = {run.experiment or run.path: run for run in self._runs}
        return {path for run in examples.values() for path in read_settings(run.path)}

    def is_known(self, name: str) -> bool:
        """Returns whether a name is a column, a metric or a setting of one of the runs."""
        if name in self.fields or name in self._metrics:
            return True
        if _split_prefix(name)[0]:
            return _split_prefix(name)[1] in self._metrics
        return name in self._settings

    def check(self, name: str, flag: str) -> None:
        """Raises `RunnerError` if a name is unknown. `flag` is where the user wrote it."""
        if not self._runs or self.is_known(name):
            return
        near = nearest_name_hint(name, [*self.fields, *self._metrics, *self._settings])
        metrics = ", ".join(sorted(self._metrics)) or "none"
        raise RunnerError(
            f"unknown name {name!r}{near}\n"
            f"columns: {', '.join(self.fields)}\n"
            f"metrics of these runs: {metrics}\n"
            "settings: dotted paths, such as trainer.train_steps",
            path=flag,
            code="unknown-name",
        )

    def value(self, run: RunSummary, name: str) -> Value:
        """Returns a value, or None if the run has no such value."""
        if name in self.fields:
            return self.fields[name](run)
        kind, metric = _split_prefix(name)
        if kind:
            return (run.best if kind == "best" else run.metrics).get(metric)
        if name in self._metrics:
            return run.metric(name)
        if name in run.changes:
            return run.changes[name]
        return read_setting(run.path, name)

    def better_values(self, name: str) -> str:
        """Returns whether `higher` or `lower` values of a metric are better; "" if not known."""
        metric = _split_prefix(name)[1]
        if name == "metric":
            metrics = {run.main_metric for run in self._runs}
            metric = metrics.pop() if len(metrics) == 1 else ""
        if metric not in self._metrics:
            return ""
        # One run of each experiment.
        keepers = {
            run.experiment or run.path: run for run in self._runs if run.best_metric == metric
        }
        return better_values(
            metric, [read_setting(run.path, METRIC_COMP) for run in keepers.values()]
        )

    def text(self, run: RunSummary, name: str) -> str:
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
        if name in ("age", "idle"):
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


def _format_metric(run: RunSummary) -> str:
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
    """Returns a function that tells whether a run satisfies an expression.

    The expression compares columns, metrics and settings with numbers and words. It may use `and`,
    `or`, `not`, `in` and parentheses. A run that lacks a value does not satisfy a comparison with
    it. Raises `RunnerError` if the expression is invalid or a name is unknown.
    """
    if len(text) > _MAX_LENGTH:
        raise _error(text, "the expression is too long")
    in_seconds = _DURATION.sub(lambda match: str(float(match[1]) * _SECONDS[match[2]]), text)
    try:
        tree = ast.parse(in_seconds.strip(), mode="eval").body
        return _Parser(text, columns).condition(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _error(text, getattr(error, "msg", None) or "invalid expression") from None


class _Parser:
    def __init__(self, text: str, columns: RunColumns) -> None:
        self._text = text
        self._columns = columns

    def condition(self, node: ast.expr) -> Condition:
        """Returns the condition that a node of the expression states."""
        if isinstance(node, ast.BoolOp):
            parts = [self.condition(value) for value in node.values]
            combine = all if isinstance(node.op, ast.And) else any
            return lambda run: combine(part(run) for part in parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.condition(node.operand)
            return lambda run: not inner(run)
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        raise _error(self._text, f"expected a comparison, got {ast.unparse(node)!r}")

    def _comparison(self, node: ast.Compare) -> Condition:
        values = [
            self._column(node.left),
            *(self._operand(operand) for operand in node.comparators),
        ]
        operators = [_COMPARE.get(type(op)) for op in node.ops]

        def is_true(run: RunSummary) -> bool:
            of_run = [value(run) for value in values]
            pairs = zip(of_run, operators, of_run[1:], strict=False)
            return all(self._compare(*pair, node) for pair in pairs)

        if None in operators:
            raise _error(self._text, "use ==, !=, <, <=, >, >=, in or not in")
        return is_true

    def _compare(self, left: object, compare: Any, right: object, node: ast.Compare) -> bool:
        if left is None or right is None:
            return False
        try:
            return bool(compare(left, right))
        except TypeError:
            part = ast.unparse(node)
            problem = f"cannot compare {left!r} with {right!r}"
            where = "" if part == self._text.strip() else f"{part}: "
            raise _error(self._text, f"{where}{problem}") from None

    def _column(self, node: ast.expr) -> Callable[[RunSummary], Value]:
        name = _name_of(node)
        if name is None:
            return self._operand(node)
        self._columns.check(name, _FLAG)
        return lambda run: self._columns.value(run, name)

    def _operand(self, node: ast.expr) -> Callable[[RunSummary], Value]:
        name = _name_of(node)
        if name is not None:
            if self._columns.is_known(name):
                return lambda run: self._columns.value(run, name)
            # Words need no quotes: `status == running`.
            constant: object = {"true": True, "false": False}.get(name, name)
            return lambda run: constant
        try:
            value = ast.literal_eval(_quote_words(node))
        except ValueError:
            raise _error(self._text, f"expected a value, got {ast.unparse(node)!r}") from None
        return lambda run: value


def _quote_words(node: ast.expr) -> ast.expr:
    """Returns a list or tuple with its words as strings, and any other node unchanged."""
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        items = [_quote_words(item) for item in node.elts]
        return ast.copy_location(ast.List(elts=items, ctx=ast.Load()), node)
    name = _name_of(node)
    return node if name is None else ast.copy_location(ast.Constant(name), node)


def _name_of(node: ast.expr) -> str | None:
    """Returns the name that a node spells: `accuracy`, `task.model.name` or `task/accuracy`."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _name_of(node.value)
        return None if before is None else f"{before}.{node.attr}"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        left, right = _name_of(node.left), _name_of(node.right)
        return None if left is None or right is None else f"{left}/{right}"
    return None


def _error(text: str, reason: str) -> RunnerError:
    return RunnerError(
        f"{shorten(text)}: {reason}\nexample: {_EXAMPLE}", path=_FLAG, code="bad-syntax"
    )
