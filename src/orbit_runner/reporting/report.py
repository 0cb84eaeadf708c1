"""The report of a run as a self-contained HTML page, from the files of the run."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.config.serialize import inline_yaml
from orbit_runner.reporting.document import (
    Chart,
    Facts,
    Part,
    Section,
    Series,
    Table,
    Text,
)
from orbit_runner.reporting.evaluation import evaluation_parts
from orbit_runner.reporting.html import explanation, page
from orbit_runner.reporting.inspection import batch_parts, layer_table, total_table
from orbit_runner.reporting.numbers import format_duration, number_or_dash
from orbit_runner.reporting.report_data import InputData, ModelData, parse_evaluation, read_data
from orbit_runner.reporting.results import worse_than_constant
from orbit_runner.run_directory.config import read_config_text
from orbit_runner.run_directory.evaluations import read_evaluations
from orbit_runner.run_directory.metric_records import (
    SPEED,
    SYSTEM,
    Curves,
    metric_title,
    metric_values,
)
from orbit_runner.run_directory.run_reader import (
    MOST_POINTS,
    NON_METRICS,
    RunReader,
    attempt_seconds,
)
from orbit_runner.serving.export_directory import read_exports
from orbit_runner.utils.text_table import table_lines

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

_NAMES = {"train": "training", "validation": "validation"}
# Metrics that have one name per split, drawn in one chart.
_PAIRS = {"training_loss": "loss", "validation_loss": "loss"}
_MOST_CHECKPOINTS = 20
_MOST_EVALUATIONS = 50
_MOST_STEPS = 5  # of evaluations that are not finite
_OF_MACHINE = "speed and machine"
_GOOD, _BAD = ("finished", "running"), ("diverged", "failed", "lost")


def make_report(path: Path, name: str = "") -> str:
    """Returns the report of a run as an HTML page.

    Args:
        path: The run directory.
        name: The name of the run directory to show, if it is not `path`.
    """
    run = RunReader(path, MOST_POINTS)
    data = read_data(path)
    baselines = {} if data.inputs is None else data.inputs.baselines
    exports = read_exports(path, str(run.settings.get("trainer.export_subdir") or ""))
    changes = [(name, inline_yaml(value)) for name, value in run.changes.items()]
    sections = [
        Section("", [*_header(run, name or str(path), baselines)]),
        Section("Evaluation", evaluation_parts(data.evaluation)),
        Section("Curves", _curves(run)),
        Section("Evaluations of checkpoints", [_evaluations(run), *_newest_evaluation(run)]),
        Section("Inputs", input_parts(data.inputs)),
        Section("Model", model_parts(data.model)),
        Section("Exports", export_parts(exports)),
        Section("Settings that override the experiment file", [Table(changes)]),
        Section("Config", [_folded("all settings", read_config_text(path))]),
        Section("Starts", [_starts(run)]),
        Section("Weights", _weights(run)),
        Section("Environment", [_environment(run)]),
    ]
    heading = run.title or run.path.name
    return page(f"{heading}: {run.status}", sections, heading)


def _header(
    run: RunReader, name: str, baselines: Mapping[str, tuple[str, float]]
) -> Iterator[Part]:
    yield Text(str(run.settings.get("description") or ""), "soft")
    yield Text(_non_finite_evaluations(run), "bad")
    kind = "good" if run.status in _GOOD else "bad" if run.status in _BAD else ""
    status = f"{run.status}: {run.reason}" if run.reason else run.status
    yield Text(status, kind, is_bold=True)
    date = time.strftime("%Y-%m-%d %H:%M:%S %z")
    yield Text(f"{run.last_mode} in {name}, written {date}", "soft")
    warnings = [*((run.attempts[-1].get("warnings") if run.attempts else None) or ())]
    metrics = {name: run.metric(name) for name in run.metrics}
    for warning in (*warnings, worse_than_constant(metrics, baselines)):
        yield Text(str(warning), "bad")
    yield _facts(run, baselines)


def _non_finite_evaluations(run: RunReader) -> str:
    """Returns which metrics of which evaluations are NaN or infinite; "" if all are finite."""
    steps: dict[str, list[int]] = {}
    last = 0
    for (split, name), points in run.curves.items():
        if split == "validation":
            last = max([last, *points])
            if bad := [step for step, value in points.items() if not math.isfinite(value)]:
                steps[name] = bad
    if not steps:
        return ""
    texts = []
    for name, bad in steps.items():
        last_steps = ", ".join(f"{step:,}" for step in bad[-_MOST_STEPS:])
        more = "…, " if bad[_MOST_STEPS:] else ""
        texts.append(f"{name} at step {more}{last_steps}")
    is_last = any(last in bad for bad in steps.values())
    which = "The last evaluation is" if is_last else "Some evaluations are"
    return f"{which} not finite: {'; '.join(texts)}"


def _facts(run: RunReader, baselines: Mapping[str, tuple[str, float]]) -> Facts:
    constants = {n: f"; {text} {number_or_dash(result)}" for n, (text, result) in baselines.items()}
    total = f" of {run.train_steps:,}" if run.train_steps else ""
    facts = [("step", f"{run.step:,}", total)]
    # All metrics of the best evaluation, if there is one, not some of the last.
    for name in dict.fromkeys([run.main_metric, *run.metrics]):
        value = run.metric(name)
        if name and value is not None and name not in (*NON_METRICS, "learning_rate"):
            at = f"best, at step {run.best_step:,}" if name in run.best else "last"
            title = name.replace("_", " ")
            facts.append((title, number_or_dash(value), at + constants.get(name, "")))
    if run.seconds is not None:
        starts = "1 start" if run.starts == 1 else f"{run.starts} starts"
        facts.append(("wall time", format_duration(run.seconds), starts))
    if run.steps_per_second is not None:
        facts.append(("steps/s", number_or_dash(run.steps_per_second), "median"))
    return Facts(facts)


def _curves(run: RunReader) -> list[Part]:
    """Returns the charts of all metrics; those of the machine are folded."""
    charts: list[Part] = []
    of_machine: list[Part] = []
    for name, chart in _named_charts(run.curves, run.main_metric, run.best_step):
        (of_machine if name.startswith(SYSTEM) or name in NON_METRICS else charts).append(chart)
    return [*charts, Section(_OF_MACHINE, of_machine, is_folded=True)]


def metric_charts(curves: Curves) -> Iterator[Chart]:
    """Yields a chart for each metric, with both splits in one: loss first, speed last."""
    return (chart for _, chart in _named_charts(curves))


def _named_charts(
    curves: Curves, best_metric: str = "", best_step: int | None = None
) -> Iterator[tuple[str, Chart]]:
    """Yields the name of each metric and its chart, in which the best evaluation is marked."""
    groups: dict[str, list[tuple[str, Mapping[int, float]]]] = {}
    for (split, name), points in curves.items():
        if name == "validation_examples" or (split, name) == ("validation", SPEED):
            continue
        name = _PAIRS.get(name, name)
        groups.setdefault(name, []).append((split, points))
    best_name = _PAIRS.get(best_metric, best_metric)
    for name in sorted(groups, key=_rank):
        series = [
            Series(
                _NAMES[split],
                points,
                0 if split == "train" else 1,
                best=best_step if name == best_name and split == "validation" else None,
            )
            for split, points in groups[name]
        ]
        yield name, Chart(metric_title(name), series)


def _rank(name: str) -> tuple[bool, ...]:
    return (
        name.startswith(SYSTEM),
        name in NON_METRICS,
        name == "learning_rate",
        name != "loss",
    )


def _evaluations(run: RunReader) -> Table:
    """Returns the table of what `runner evaluate` found, on any data."""
    rows = [
        (
            str(record.get("time", "")),
            f"{record.get('checkpoint', '')}, {record.get('weights', '')} weights",
            "; ".join(f"{path}: {inline_yaml(value)}" for path, value in record["data"].items())
            or "validation data of the run",
            ", ".join(
                f"{name} {number_or_dash(value)}"
                for name, value in metric_values(record["metrics"]).items()
            ),
        )
        for record in read_evaluations(run.path)
    ]
    return Table(rows[-_MOST_EVALUATIONS:], head=("time", "checkpoint", "data", "results"))


def _newest_evaluation(run: RunReader) -> Iterator[Section]:
    """Yields what is known of the newest result of `runner evaluate`."""
    for record in reversed([*read_evaluations(run.path)]):
        try:
            details = parse_evaluation(record["details"])
        except (ValueError, TypeError, KeyError):
            continue  # The record is damaged.
        title = f"{record.get('checkpoint', '')}, evaluated at {_time_text(record.get('time'))}"
        yield Section(title, evaluation_parts(details))
        return


def _folded(title: str, text: str) -> Section:
    return Section(title, [Text(text, "file")], is_folded=True)


def _starts(run: RunReader) -> Table:
    rows = [
        [
            _time_text(attempt.get("started")),
            format_duration(attempt_seconds(attempt)),
            str(attempt.get("outcome") or "no outcome recorded").splitlines()[0],
            " ".join(map(str, attempt.get("argv") or ())),
        ]
        for attempt in run.attempts
    ]
    return Table(rows, head=("started", "wall time", "outcome", "command"))


def _time_text(timestamp: object) -> str:
    """Returns the timestamp of a record as words: 2026-01-31 12:00:00 +0000."""
    return re.sub(r"T([\d:]+)(?=[+-])", r" \1 ", str(timestamp or ""))


def _weights(run: RunReader) -> list[Part]:
    if not run.newest_weights:
        return []
    prints = run.fingerprints
    rows = [
        (f"{step:,}", prints[step].weights[:16], prints[step].state[:16])
        for step in sorted(prints)[-_MOST_CHECKPOINTS:]
    ]
    last = run.attempts[-1] if run.attempts else {}
    conditions = run.newest_record.numerics if run.newest_record else {}
    return [
        Text(f"SHA-256 {run.newest_weights}"),
        *_reproducibility(last.get("inexact")),
        Table(rows, head=("checkpoint at step", "weights", "whole state")),
        _folded(
            "What the weights depend on besides the config",
            "\n".join(table_lines(conditions.items())),
        ),
    ]


def _reproducibility(reasons: Sequence[object] | None) -> Iterator[Text]:
    if reasons:
        text = "\n".join(["The config may not reproduce these weights:", *map(str, reasons)])
        yield Text(text, "bad")
    elif reasons is not None:
        yield Text("The config reproduces these weights bit for bit.", "good")


def _environment(run: RunReader) -> Table:
    rows = [("devices", run.devices)] if run.devices else []
    return Table([*rows, *((name, str(value)) for name, value in run.software.items())])


def model_parts(model: ModelData | None) -> list[Part]:
    """Returns totals and the table of layers; empty if they are not known."""
    if model is None or not model.layers:
        return []
    return [total_table(model.layers, model.step_flops), layer_table(model.layers)]


def input_parts(inputs: InputData | None) -> list[Part]:
    """Returns a batch, or why it is not known."""
    if inputs is None:
        return []
    if inputs.problem:
        return [explanation(f"not collected: {inputs.problem}")]
    which = "a training batch" if inputs.step is None else f"the batch of step {inputs.step + 1:,}"
    return [
        explanation(f"{which}, after augmentation, as the model gets it"),
        *batch_parts(inputs.tensors, inputs.sentences, inputs.pictures),
    ]


def export_parts(records: Sequence[JsonObject]) -> list[Part]:
    """Returns the sizes, differences and times of the exports; empty if there are none."""
    if not records:
        return []
    checks = [record["check"] for record in records if isinstance(record.get("check"), dict)]
    counts = sorted({str(check.get("examples", "?")) for check in checks})
    note = f"compared with the model on {' and '.join(counts)} validation examples"
    return [*([explanation(note)] if checks else []), export_table(records)]


def export_table(records: Sequence[JsonObject]) -> Table:
    """Returns a table with a row for each export and, before those of a step, one for its model.

    Exports that were not compared with the model, such as a SavedModel, have dashes.
    """
    checks = [record.get("check") or {} for record in records]
    names = tuple(dict.fromkeys(name for check in checks for name in check.get("metrics", ())))
    head = ("step", "format", "bytes", "difference", "relative", *names)
    rows: list[tuple[str, ...]] = []
    step = None
    for record, check in zip(records, checks, strict=True):
        if check and record["step"] != step:
            step = record["step"]
            before = check.get("model_metrics", {})
            rows.append(
                (
                    *(f"{step:,}", "the model itself", number_or_dash(record.get("model_bytes"))),
                    *("-", "-", *(number_or_dash(before.get(name)) for name in names)),
                )
            )
        after = check.get("metrics", {})
        rows.append(
            (
                *(f"{record['step']:,}", str(record.get("format"))),
                number_or_dash(record.get("bytes")),
                *(number_or_dash(check.get(name)) for name in ("difference", "relative")),
                *(number_or_dash(after.get(name)) for name in names),
            )
        )
    return Table(rows, head, right=[column for column in range(len(head)) if column != 1])
