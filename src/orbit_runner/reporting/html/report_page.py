"""The report of a run as a self-contained HTML page, from the files of the run."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from orbit_runner.config.serialize import inline_yaml
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.profiling.profile import profile_of
from orbit_runner.profiling.trace_files import TraceFiles, newest_trace
from orbit_runner.reporting.html.confusion_matrix import confusion_matrix
from orbit_runner.reporting.html.model_section import input_content, model_content, picture_grid
from orbit_runner.reporting.html.page import page, paragraph, section, subsection, table
from orbit_runner.reporting.html.svg_chart import Series, line_chart, share_bar
from orbit_runner.reporting.numbers import duration_or_dash, number_or_dash
from orbit_runner.reporting.report_data.files import EvaluationData, ReportData
from orbit_runner.reporting.text.exports import export_head, export_rows
from orbit_runner.reporting.text.profile import (
    KIND_HEAD,
    PART_HEAD,
    advice,
    kind_rows,
    kind_title,
    part_rows,
    part_title,
    verdict,
)
from orbit_runner.run_directory.evaluations import read_evaluations
from orbit_runner.run_directory.metric_records import (
    SPEED,
    SYSTEM,
    UPDATE_RATIO,
    WATCH,
    Curves,
    metric_values,
)
from orbit_runner.run_directory.run_data import NON_METRICS, RunData
from orbit_runner.run_directory.run_summary import attempt_seconds
from orbit_runner.serving.export_directory import read_exports

_NAMES = {"train": "training", "validation": "validation"}
# Metrics that have one name per split, drawn in one chart.
_PAIRS = {"training_loss": "loss", "validation_loss": "loss"}
_MOST_CHECKPOINTS = 20
_MOST_EVALUATIONS = 50
_MOST_STEPS = 5  # of evaluations that are not finite
_MOST_PARTIAL = 10
_GOOD, _BAD = ("finished", "running"), ("diverged", "failed", "lost")
_PROFILE_ROWS = 10


def report_page(
    run: RunData,
    config: str,
    conditions: Mapping[str, str],
    data: ReportData = ReportData(),
) -> str:
    """Returns the report of a run.

    Args:
        run: The run.
        config: The text of its `config.yaml`.
        conditions: What the weights of the newest checkpoint depend on besides the config.
        data: What was collected of the model, its inputs and its mistakes.
    """
    title = f"{run.experiment or run.summary.path.name}: {run.summary.status}"
    charts, partial = "".join(_charts(run.curves)), _partial_records(run.partial_records)
    body = [
        _header(run),
        _warnings(run),
        _tiles(run),
        section("Curves", f"<div class=charts>{charts}</div>{partial}" if charts else ""),
        section("Evaluation", evaluation_content(data.evaluation)),
        section("Evaluations of checkpoints", _evaluations(run)),
        section("Inputs", input_content(data.inputs)),
        section("Model", model_content(data.model)),
        section("Exports", exports_content(_exports(run))),
        section("Settings that override the experiment file", _changes(run)),
        section("Config", _details("config.yaml", config)),
        section("Starts", _starts(run)),
        section("Time", _times(run)),
        section("Profile", profile_content(run.summary.path)),
        section("Weights", _weights(run, conditions)),
        section("Environment", _environment(run)),
    ]
    return page(title, "\n".join(filter(None, body)))


def _header(run: RunData) -> str:
    summary = run.summary
    kind = "good" if summary.status in _GOOD else "bad" if summary.status in _BAD else ""
    reason = f" <span class=soft>{escape(summary.reason)}</span>" if summary.reason else ""
    description = str(run.settings.get("description") or "")
    return (
        f"<h1>{escape(run.experiment or summary.path.name)}</h1>"
        f"<p class=soft>{escape(description)}</p>"
        f"{_non_finite_evaluations(run)}"
        f'<p><b class="{kind}">{escape(summary.status)}</b>{reason}'
        f" <span class=soft>{escape(summary.mode)} in <code>{escape(run.name)}</code>, "
        f"written {time.strftime('%Y-%m-%d %H:%M:%S %z')}</span></p>"
    )


def _non_finite_evaluations(run: RunData) -> str:
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
        shown = ", ".join(f"{step:,}" for step in bad[-_MOST_STEPS:])
        more = "…, " if bad[_MOST_STEPS:] else ""
        texts.append(f"{name} at step {more}{shown}")
    is_last = any(last in bad for bad in steps.values())
    which = "The last evaluation is" if is_last else "Some evaluations are"
    return f"<p class=bad>{which} not finite: {escape('; '.join(texts))}</p>"


def _warnings(run: RunData) -> str:
    """Returns the warnings that the last start of the run showed."""
    attempts = run.history.attempts
    texts = attempts[-1].get("warnings") if attempts else None
    return "".join(f"<p class=bad>{escape(str(text))}</p>" for text in texts or ())


def _tiles(run: RunData) -> str:
    summary = run.summary
    total = f" of {summary.train_steps:,}" if summary.train_steps else ""
    tiles = [("step", f"{summary.step:,}", total)]
    name = summary.main_metric
    if name and (value := summary.metric(name)) is not None:
        at = f"best, at step {summary.best_step:,}" if name in summary.best else "last"
        tiles.append((name.replace("_", " "), number_or_dash(value), at))
    for other, value in summary.metrics.items():
        if other != name and other not in (*NON_METRICS, "learning_rate"):
            tiles.append((other.replace("_", " "), number_or_dash(value), "last"))
    if run.seconds is not None:
        tiles.append(
            (
                "wall time",
                duration_or_dash(run.seconds),
                "1 start" if summary.starts == 1 else f"{summary.starts} starts",
            )
        )
    if run.steps_per_second is not None:
        tiles.append(("steps/s", number_or_dash(run.steps_per_second), "median"))
    return "<div class=tiles>{}</div>".format(
        "".join(
            f"<div><span class=soft>{escape(name)}</span><b>{escape(value)}</b>"
            f"<span class=soft>{escape(note)}</span></div>"
            for name, value, note in tiles
        )
    )


def _charts(curves: Curves) -> Iterator[str]:
    """Yields a chart for each metric, with both splits in one: loss first, speed last."""
    groups: dict[str, list[tuple[str, Mapping[int, float]]]] = {}
    for (split, name), points in curves.items():
        if name == "validation_examples" or (split, name) == ("validation", SPEED):
            continue
        name = UPDATE_RATIO if name.startswith(UPDATE_RATIO) else _PAIRS.get(name, name)
        groups.setdefault(name, []).append((split, points))
    for name in sorted(groups, key=_rank):
        if name == UPDATE_RATIO:
            yield _update_ratios(curves)
            continue
        series = [
            Series(_NAMES[split], points, 0 if split == "train" else 1)
            for split, points in groups[name]
        ]
        yield line_chart(_chart_title(name), series)


def _partial_records(counts: Mapping[int, int]) -> str:
    """Returns which training records average over fewer steps, because the run was resumed."""
    if not counts:
        return ""
    items = [
        f"step {step:,}: the last {count:,}" for step, count in [*counts.items()][-_MOST_PARTIAL:]
    ]
    more = ", …" if len(counts) > len(items) else ""
    return (
        "<p class=soft>The run was resumed between two records, so these training records average "
        f"over fewer steps than others: {escape('; '.join(items))}{more}</p>"
    )


def _rank(name: str) -> tuple[bool, ...]:
    return (
        name.startswith(SYSTEM),
        name in NON_METRICS,
        name.startswith(WATCH),
        name == "learning_rate",
        name != "loss",
    )


def _chart_title(name: str) -> str:
    return name.removeprefix(WATCH).replace("/", " ").replace("_", " ")


def _update_ratios(curves: Curves) -> str:
    """Returns one chart with a line for each layer."""
    layers = {
        name.removeprefix(UPDATE_RATIO): points
        for (_, name), points in curves.items()
        if name.startswith(UPDATE_RATIO)
    }
    series = [Series(name, points, n) for n, (name, points) in enumerate(layers.items())]
    return line_chart("update / weights by layer", series, may_be_log=True)


def _changes(run: RunData) -> str:
    return table((), [(path, inline_yaml(value)) for path, value in run.summary.changes.items()])


def _evaluations(run: RunData) -> str:
    """Returns the table of what `runner evaluate` found, on any data."""
    rows = [
        (
            str(one.get("time", "")),
            f"{one.get('checkpoint', '')}, {one.get('weights', '')} weights",
            "; ".join(f"{path}: {inline_yaml(value)}" for path, value in one["data"].items())
            or "validation data of the run",
            ", ".join(
                f"{name} {number_or_dash(value)}"
                for name, value in metric_values(one["metrics"]).items()
            ),
        )
        for one in read_evaluations(run.summary.path)
    ]
    return table(("time", "checkpoint", "data", "results"), rows[-_MOST_EVALUATIONS:])


def _exports(run: RunData) -> list[dict[str, Any]]:
    return read_exports(run.summary.path, str(run.settings.get("trainer.export_subdir") or ""))


def _details(title: str, text: str) -> str:
    if not text:
        return ""
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"


def _starts(run: RunData) -> str:
    rows = [
        [
            str(one.get("started", "")),
            duration_or_dash(attempt_seconds(one)),
            str(one.get("outcome") or "no outcome recorded").splitlines()[0],
            " ".join(map(str, one.get("argv") or ())),
        ]
        for one in run.history.attempts
    ]
    return table(("started", "wall time", "outcome", "command"), rows)


def _times(run: RunData) -> str:
    """Returns the time of each phase of the run, as a bar and a table."""
    seconds = run.phase_seconds
    total = sum(seconds.values())
    if not total:
        return ""
    rows = [[name, f"{value:,.1f} s", f"{value / total:.1%}"] for name, value in seconds.items()]
    bar = share_bar("Time by phase", seconds)
    return bar + table(("phase", "time", "share"), rows, numbers=True)


def _weights(run: RunData, conditions: Mapping[str, str]) -> str:
    if not run.weights:
        return ""
    prints = run.history.fingerprints
    rows = [
        [f"{step:,}", prints[step].weights[:16], prints[step].state[:16]]
        for step in sorted(prints)[-_MOST_CHECKPOINTS:]
    ]
    last = run.history.attempts[-1] if run.history.attempts else {}
    return "".join(
        [
            f"<p>SHA-256 <code>{escape(run.weights)}</code></p>",
            _reproducibility(last.get("inexact")),
            table(("checkpoint at step", "weights", "whole state"), rows),
            _details("What the weights depend on besides the config", _lines(conditions)),
        ]
    )


def _reproducibility(reasons: Any) -> str:
    if reasons is None:
        return ""
    if not reasons:
        return "<p class=good>The config reproduces these weights bit for bit.</p>"
    items = "".join(f"<li>{escape(str(reason))}</li>" for reason in reasons)
    return f"<p class=bad>The config may not reproduce these weights:</p><ul>{items}</ul>"


def _environment(run: RunData) -> str:
    rows = [("devices", run.devices)] if run.devices else []
    return table((), [*rows, *((name, str(value)) for name, value in run.software.items())])


def _lines(values: Mapping[str, str]) -> str:
    width = max((len(name) for name in values), default=0)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in values.items())


def evaluation_content(found: EvaluationData | None) -> str:
    """Returns confusion matrix, pictures and a table, or why they are not known."""
    if found is None:
        return ""
    if found.problem:
        return paragraph(f"examples were not collected: {found.problem}")
    pictures = picture_grid(found.pictures)
    at_step = f"step {found.step:,}"
    return "".join(
        [
            paragraph(f"{at_step}: {found.note}" if found.note else at_step),
            subsection("Confusion matrix", confusion_matrix(found.confusion, found.classes)),
            subsection("Worst mistakes", pictures) if found.confusion else pictures,
            table(found.head, found.rows, text=True),
        ]
    )


def exports_content(records: Sequence[Mapping[str, Any]]) -> str:
    """Returns the sizes, differences and times of the exports; "" if there are none."""
    if not records:
        return ""
    checks = [one["check"] for one in records if isinstance(one.get("check"), dict)]
    counts = sorted({str(one.get("examples", "?")) for one in checks})
    note = f"compared with the model on {' and '.join(counts)} validation examples"
    rows = export_rows(records)
    return (paragraph(note) if checks else "") + table(
        export_head(records), rows, right=len(rows[0]) - 2
    )


def profile_content(run: Path) -> str:
    """Returns the newest profile of a run as HTML; "" if it has no trace."""
    trace = newest_trace(run)
    return "" if trace is None else _profile_of_trace(trace)


# A report is written again and again during a run, and reading a trace can take seconds.
@functools.lru_cache(maxsize=1)
def _profile_of_trace(trace: TraceFiles) -> str:
    try:
        profile = profile_of(trace)
    except RunnerError as error:
        return f"<p class=bad>{escape(first_line(error))}</p>"
    items = "".join(f"<li>{escape(text)}</li>" for text in advice(profile))
    return "".join(
        [
            f"<p>{escape(verdict(profile))}</p>",
            f"<ul>{items}</ul>" if items else "",
            f"<p class=soft>{escape(kind_title(profile))}</p>",
            table(KIND_HEAD, kind_rows(profile, _PROFILE_ROWS), numbers=True),
            f"<p class=soft>{escape(part_title(profile))}</p>",
            table(PART_HEAD, part_rows(profile, _PROFILE_ROWS), numbers=True),
        ]
    )
