"""`sweep.html`: a sweep as a self-contained HTML page."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from pathlib import Path
from urllib.parse import quote

from orbit_runner.compare.statistics import estimate, interval_text
from orbit_runner.reporting.document import Cell, Facts, Joined, Part, Section, Table, Text
from orbit_runner.reporting.html import explanation, page
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.sweep.directory import SweepDirectory
from orbit_runner.sweep.results import SeedResult, SweepResults, TrialResult
from orbit_runner.sweep.view.charts import (
    objective_curves,
    parallel_coordinates,
    rungs,
    setting_charts,
    trials_chart,
)
from orbit_runner.sweep.view.importance import LEAST_TRIALS, Importance, importances
from orbit_runner.sweep.view.trials import (
    counts_text,
    lead_text,
    objective_text,
    train_again,
    trial_table,
    value_text,
)
from orbit_runner.utils.files import write_atomically

_INTERVAL_SECONDS = 10.0
_KINDS = {"finished": "good", "diverged": "bad", "failed": "bad"}  # of the color of a status


def sweep_page(directory: Path, results: SweepResults) -> str:
    """Returns the HTML page of a sweep, with links to the reports of its trials."""
    sections = [
        Section("", _headline(results)),
        Section("Best trial", _best(directory, results)),
        Section("Settings and objective", [parallel_coordinates(results)]),
        Section("Trials one by one", _trial_charts(directory, results)),
        Section("Importance of settings", _importance(results)),
        Section("Objective by setting", [*setting_charts(results)]),
        Section("Trials", [_trials(directory, results)]),
    ]
    return page(f"Sweep of {results.experiment}", sections)


def _headline(results: SweepResults) -> list[Part]:
    search = str(results.search.get("type") or "")
    texts = [
        f"{'Smallest' if results.mode == 'min' else 'Largest'} {results.metric} {_when(results)}",
        *([f"{search} search"] if search else []),
        *([f"{len(results.seeds)} seeds per trial"] if len(results.seeds) > 1 else []),
    ]
    return [Text(", ".join(texts), "soft"), Text(counts_text(results))]


def _when(results: SweepResults) -> str:
    steps = f"{results.train_steps:,} steps" if results.train_steps else "the end of training"
    if results.value == "best":
        return f"of all evaluations up to {steps}" if results.train_steps else "of all evaluations"
    return f"after {steps}" if results.train_steps else f"at {steps}"


def _best(directory: Path, results: SweepResults) -> list[Part]:
    best = results.best
    if best is None:
        return [Text("No trial has finished with an objective.", "soft")]
    interval = interval_text(estimate(best.objectives))
    spread = f"95 % interval {interval}" if interval else "one seed"
    facts = [
        ("trial", str(best.number), f"of {len(results.trials)}"),
        (results.objective_name.replace("_", " "), objective_text(best), spread),
        ("step", f"{best.step:,}", ""),
    ]
    names = results.setting_names
    rows = [(path, value_text(value)) for path, value in best.settings.items() if path in names]
    lead = lead_text(results)
    advice = (
        "the best of many trials looks better than it is, because it was selected: train it with "
        "other seeds before you rely on its lead"
    )
    return [
        Facts(facts),
        Text(f"{lead[:1].upper()}{lead[1:]}.") if lead else explanation(advice),
        Table(rows),
        Text("Train it again:"),
        Text(train_again(directory), "code"),
    ]


def _trial_charts(directory: Path, results: SweepResults) -> list[Part]:
    charts = [trials_chart(results), objective_curves(directory, results)]
    steps = ", ".join(f"{step:,}" for step in rungs(results))
    notes = ["a vertical line reaches from the lowest to the highest seed"] * (
        len(results.seeds) > 1
    )
    if steps:
        notes.append(f"successive halving stops trials at the dashed lines, steps {steps}")
    return [*charts, *(map(explanation, notes) if any(chart.series for chart in charts) else ())]


def _importance(results: SweepResults) -> list[Part]:
    shares = importances(results)
    if not shares:
        return []
    rows = [
        (
            importance.setting.path,
            Cell(f"{importance.share:.0%}", bar=(importance.share, importance.by_chance)),
            _direction(importance),
        )
        for importance in shares
    ]
    trials = max(importance.trials for importance in shares)
    return [
        explanation(
            "the share of the differences between trials that the values of one setting explain "
            "by themselves: eta squared of the ranks of the trials (Kruskal and Wallis 1952), with "
            "numbers in up to four groups; in brackets, Spearman's rank correlation"
        ),
        Table(rows, ("setting", "share of variance explained", "better are")),
        explanation(
            "the line in a bar is what a setting without any effect explains by chance; a bar that "
            f"ends near it means nothing. This is from {trials} trials: with fewer than "
            f"{LEAST_TRIALS}, no shares are shown, and with fewer than 30 they are rough. Settings "
            "that work only together are not found"
        ),
    ]


def _direction(importance: Importance) -> str:
    rho = importance.correlation
    if rho is None:
        return "-"
    if abs(rho) < 0.3:
        return f"neither small nor large values ({rho:+.2f})"
    return f"{'large' if rho > 0 else 'small'} values ({rho:+.2f})"


def _trials(directory: Path, results: SweepResults) -> Part:
    if not results.trials:
        return Text("No trial has started.", "soft")
    table = trial_table(results, results.ranked)
    rows = [
        (_number(directory, trial), Cell(row[1], _KINDS.get(trial.status, "soft")), *row[2:])
        for trial, row in zip(results.ranked, table.rows, strict=True)
    ]
    return dataclasses.replace(table, rows=rows)


def _number(directory: Path, trial: TrialResult) -> str:
    """Returns the number of the trial, linked to its report, or with one link for each seed."""
    if len(trial.runs) == 1:
        return _link(directory, trial.runs[0], trial.number)
    return Joined([f"{trial.number}:", *(_link(directory, run, run.seed) for run in trial.runs)])


def _link(directory: Path, run: SeedResult, number: int) -> Cell:
    report = RunDirectory(Path(run.directory)).report
    address = quote(report.as_posix()) if (directory / report).is_file() else ""
    return Cell(str(number), address=address)


class SweepPage:
    """Writes `sweep.html` again when a trial has ended, but at most every ten seconds."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._due = 0.0
        self._ended = 0

    def update(self, results: SweepResults) -> None:
        """Writes the page if it is due. A page that cannot be written does not end a sweep."""
        ended = sum(trial.status != "pending" for trial in results.trials)
        if ended == self._ended or time.monotonic() < self._due:
            return
        with contextlib.suppress(OSError):
            self.write(results)
        self._ended = ended
        self._due = time.monotonic() + _INTERVAL_SECONDS

    def write(self, results: SweepResults) -> None:
        """Writes the page."""
        text = sweep_page(self._directory, results)
        write_atomically(SweepDirectory(self._directory).page, text)
