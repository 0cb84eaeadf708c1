"""`sweep.html` and `sweep.csv`: a sweep as a self-contained HTML page, and as a table."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import json
import shlex
import time
from pathlib import Path
from urllib.parse import quote

from orbit_runner.compare.statistics import estimate_text, interval_text
from orbit_runner.errors import format_count
from orbit_runner.reporting.document import Html, Part, Section, Table, Text
from orbit_runner.reporting.html import Markup, explanation, page, tiles
from orbit_runner.reporting.svg import escape
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.sweep.results import SeedResult, SweepResults, TrialResult
from orbit_runner.sweep.view.charts import (
    objective_curves,
    rungs,
    setting_charts,
    trials_chart,
    winner_curves,
)
from orbit_runner.sweep.view.importance import LEAST_TRIALS, Importance, importances
from orbit_runner.sweep.view.parallel_coordinates import SHADES, parallel_coordinates
from orbit_runner.sweep.view.ranking import (
    lead_text,
    objective_estimate,
    rank_trials,
    status_counts,
    trial_table,
)
from orbit_runner.sweep.view.setting_axis import setting_names, value_text
from orbit_runner.utils.files import write_atomically

BEST_CONFIG = "best.yaml"
CSV_FILE = "sweep.csv"
PAGE_FILE = "sweep.html"
_INTERVAL_SECONDS = 10.0
_BAR_WIDTH, _BAR_HEIGHT = 160, 12
# From the best to the worst trials: strong to faint on each background.
_LIGHT = ("#1e3a8a", "#2f55b0", "#5b7fcb", "#8ba7de", "#b3c5e8", "#cfd9ea")
_DARK = ("#cfe0ff", "#9dbcf5", "#7195d8", "#5473ae", "#415680", "#36445f")

_STYLE = """
:root{LIGHT--best:var(--c1)}
@media (prefers-color-scheme:dark){:root{DARK}}
svg .back{fill:var(--card)}
svg .name{font-weight:600;fill:var(--ink)}
svg .strand{fill:none;stroke:var(--q);stroke-width:1.4;opacity:.8}
.many .strand{stroke-width:1.1;opacity:.5}
svg .strand:hover{stroke-width:3.5;opacity:1}
svg .strand.best{stroke:var(--best);stroke-width:3;opacity:1}
svg .strand.lost{stroke:var(--bad);stroke-width:1;stroke-dasharray:4 3;opacity:.7}
svg.share{display:inline-block;width:160px;min-width:160px;height:12px;vertical-align:middle}
svg .rest{fill:var(--line)}
svg .chance{stroke:var(--ink);stroke-width:2;fill:none}
.tiles.roomy{grid-template-columns:repeat(auto-fit,minmax(170px,1fr));margin-bottom:10px}
.key-best{--c:var(--best)}
.key-lost{--c:var(--bad)}
a{color:var(--c0)}
@media (max-width:600px){svg.share{width:80px;min-width:80px}}
.charts{grid-template-columns:repeat(auto-fill,minmax(min(100%,400px),1fr))}
KEYS
@media print{svg .strand,.legend{print-color-adjust:exact}}
"""


def sweep_page(directory: Path, results: SweepResults) -> str:
    """Returns the HTML page of a sweep, with links to the reports of its trials."""
    title = f"Sweep of {results.experiment}"
    sections = [
        Section("", _headline(results)),
        Section("Best trial", _best(directory, results)),
        Section("Settings and objective", [Html(parallel_coordinates(results))]),
        Section("Trials one by one", _trial_charts(directory, results)),
        Section("Importance of settings", _importance(results)),
        Section("Objective by setting", [*setting_charts(results)]),
        Section("Curves of the best trial", _winner(directory, results)),
        Section("Trials", [_trials(directory, results)]),
    ]
    return page(title, sections, style=_style())


def _style() -> str:
    light = "".join(f"--q{index}:{color};" for index, color in enumerate(_LIGHT))
    dark = "".join(f"--q{index}:{color};" for index, color in enumerate(_DARK))
    keys = "".join(
        f".q{index}{{--q:var(--q{index})}}.key-q{index}{{--c:var(--q{index})}}"
        for index in range(SHADES)
    )
    return _STYLE.replace("LIGHT", light).replace("DARK", dark).replace("KEYS", keys)


def _headline(results: SweepResults) -> list[Part]:
    kind = str(results.search.get("type") or "")
    search = f", {escape(kind)} search" if kind else ""
    seeds = f", {len(results.seeds)} seeds per trial" if len(results.seeds) > 1 else ""
    counts = status_counts(results)
    count = len(results.trials)
    lines = (
        f"<p class=soft>{'Smallest' if results.mode == 'min' else 'Largest'} "
        f"<b>{escape(results.metric)}</b> {escape(_when(results))}{search}{seeds}</p>"
        f"<p>{format_count(count, 'trial')}{f': {counts}' if counts else ''}</p>"
    )
    return [Html(lines)]


def _when(results: SweepResults) -> str:
    steps = f"{results.train_steps:,} steps" if results.train_steps else "the end of training"
    if results.value == "best":
        return f"of all evaluations up to {steps}" if results.train_steps else "of all evaluations"
    return f"after {steps}" if results.train_steps else f"at {steps}"


def _best(directory: Path, results: SweepResults) -> list[Part]:
    best = results.best
    if best is None:
        return [Text("No trial has finished with an objective.", "soft")]
    objective = objective_estimate(best)
    interval = "" if objective is None else interval_text(objective)
    spread = f"95 % interval {interval}" if interval else "one seed"
    facts = [
        ("trial", str(best.number), f"of {len(results.trials)}"),
        (
            results.objective_name.replace("_", " "),
            "-" if objective is None else estimate_text(objective),
            spread,
        ),
        ("step", f"{best.step:,}", ""),
    ]
    names = setting_names(results)
    rows = [(path, value_text(value)) for path, value in best.settings.items() if path in names]
    lead = lead_text(results)
    advice = (
        "the best of many trials looks better than it is, because it was selected: train it with "
        "other seeds before you rely on its lead"
    )
    # Trains the best trial again, in a directory of its own.
    config = shlex.quote(str(directory / BEST_CONFIG))
    return [
        tiles(facts, " roomy"),
        Text(f"{lead[:1].upper()}{lead[1:]}.") if lead else explanation(advice),
        Table(rows),
        Text("Train it again:"),
        Text(f"runner --experiment={config} --model_dir=runs/best", "code"),
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
            f"{importance.share:.0%}",
            Markup(_importance_bar(importance)),
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
        Table(rows, ("setting", "share", "of variance explained", "better are"), right=[1]),
        explanation(
            "the line in a bar is what a setting without any effect explains by chance; a bar that "
            f"ends near it means nothing. This is from {trials} trials: with fewer than "
            f"{LEAST_TRIALS}, no shares are shown, and with fewer than 30 they are rough. Settings "
            "that work only together are not found"
        ),
    ]


def _importance_bar(importance: Importance) -> str:
    width = importance.share * _BAR_WIDTH
    chance = importance.by_chance * _BAR_WIDTH
    return (
        f'<svg class=share viewBox="0 0 {_BAR_WIDTH} {_BAR_HEIGHT}" width={_BAR_WIDTH} '
        f'height={_BAR_HEIGHT} role="img" aria-label="{importance.share:.0%}">'
        f"<rect class=rest width={_BAR_WIDTH} height={_BAR_HEIGHT}></rect>"
        f"<rect class=c0 width={width:.1f} height={_BAR_HEIGHT}></rect>"
        f'<path class=chance d="M{chance:.1f} 0V{_BAR_HEIGHT}"><title>by chance '
        f"{importance.by_chance:.0%}</title></path></svg>"
    )


def _direction(importance: Importance) -> str:
    rho = importance.correlation
    if rho is None:
        return "-"
    if abs(rho) < 0.3:
        return f"neither small nor large values ({rho:+.2f})"
    return f"{'large' if rho > 0 else 'small'} values ({rho:+.2f})"


def _winner(directory: Path, results: SweepResults) -> list[Part]:
    charts = winner_curves(directory, results)
    note = "lines are means over the seeds, areas reach from the lowest to the highest seed"
    return [*charts, *([explanation(note)] if charts and len(results.seeds) > 1 else [])]


def _trials(directory: Path, results: SweepResults) -> Part:
    if not results.trials:
        return Text("No trial has started.", "soft")
    trials = rank_trials(results)
    table = trial_table(results, trials)
    rows = [
        (Markup(_links(directory, trial)), _status(trial, row[1]), *row[2:])
        for trial, row in zip(trials, table.rows, strict=True)
    ]
    return dataclasses.replace(table, rows=rows)


def _status(trial: TrialResult, text: str) -> str:
    kind = {"finished": "good", "diverged": "bad", "failed": "bad"}.get(trial.status, "soft")
    return Markup(f"<span class={kind}>{escape(text)}</span>")


def _links(directory: Path, trial: TrialResult) -> str:
    """Returns the number of the trial, linked to its report, or one link for each seed."""
    if len(trial.runs) == 1:
        return _link(directory, trial.runs[0], str(trial.number))
    seeds = ", ".join(_link(directory, run, str(run.seed)) for run in trial.runs)
    return f"{trial.number} <span class=soft>{seeds}</span>" if seeds else str(trial.number)


def _link(directory: Path, run: SeedResult, text: str) -> str:
    report = RunDirectory(Path(run.directory)).report
    if not (directory / report).is_file():
        return escape(text)
    return f'<a href="{quote(report.as_posix())}">{escape(text)}</a>'


class SweepFiles:
    """Writes the files again when a trial has ended, but at most every ten seconds."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._due = 0.0
        self._ended = 0

    def update(self, results: SweepResults) -> None:
        """Writes the files if they are due. A file that cannot be written does not end a sweep."""
        ended = sum(trial.status != "pending" for trial in results.trials)
        if ended == self._ended or time.monotonic() < self._due:
            return
        with contextlib.suppress(OSError):
            self.write(results)
        self._ended = ended
        self._due = time.monotonic() + _INTERVAL_SECONDS

    def write(self, results: SweepResults) -> None:
        """Writes each file atomically."""
        write_atomically(self._directory / CSV_FILE, csv_text(results))
        write_atomically(self._directory / PAGE_FILE, sweep_page(self._directory, results))


def csv_text(results: SweepResults) -> str:
    """Returns the text of `sweep.csv`: a row for each seed of each trial; lists are JSON."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "seed", *results.space, "status", "step", "objective", "weights"])
    for trial in results.trials:
        values = [
            value if isinstance(value, (str, float)) else json.dumps(value)
            for value in (trial.settings.get(path, "") for path in results.space)
        ]
        for run in trial.runs:
            row = [run.status, run.step, run.objective, run.weights]
            writer.writerow([trial.number, run.seed, *values, *row])
    return text.getvalue()
