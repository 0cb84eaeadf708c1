"""The trials of a sweep as text: a line for each, a table for terminals, the plan of a dry run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.config.serialize import inline_yaml, short_setting_names
from orbit_runner.errors import format_count
from orbit_runner.reporting.document import Section
from orbit_runner.reporting.terminal import section_lines
from orbit_runner.sweep.definition import new_sweep
from orbit_runner.sweep.results import SweepResults, TrialResult
from orbit_runner.sweep.run_state import RunState
from orbit_runner.sweep.schedule import Schedule
from orbit_runner.sweep.sweep_file import SweepFile
from orbit_runner.sweep.view.page import PAGE_FILE
from orbit_runner.sweep.view.trials import (
    counts_text,
    lead_text,
    objective_text,
    settings_text,
    status_counts,
    train_again,
    trial_table,
)
from orbit_runner.utils.log import note, phase
from orbit_runner.utils.streams import print_result
from orbit_runner.utils.text_table import table_lines

_MOST_SUMMARY_TRIALS = 10


def print_summary(directory: Path, results: SweepResults, *, as_json: bool = False) -> None:
    """Prints the results of a sweep on standard output, or `sweep.json` if `as_json`."""
    width = shutil.get_terminal_size((120, 24)).columns
    lines = summary_lines(directory, results, width)
    print_result(results.to_json() if as_json else "\n".join(lines), is_data=as_json)


def summary_lines(directory: Path, results: SweepResults, width: int) -> Iterator[str]:
    """Yields the lines: counts, the ten best trials, how far the best is ahead, and what to do."""
    yield f"{results.experiment}: {counts_text(results)}"
    ranked = [trial for trial in results.ranked if trial.objective is not None]
    if ranked:
        yield ""
        table = trial_table(results, ranked[:_MOST_SUMMARY_TRIALS])
        yield from section_lines([Section("", [table])], width)
    best = results.best
    if best is None:
        yield f"no trial has finished with a value of {results.metric}"
        return
    yield ""
    if lead := lead_text(results):
        yield lead
    yield f"page    {directory / PAGE_FILE}"
    yield f"winner  {train_again(directory)}"


_MOST_PLANNED_TRIALS = 20


def format_plan(file: SweepFile, base: ResolvedConfig) -> list[str]:
    """Returns the lines of the table, and what the sweep does."""
    sweep = new_sweep(file, base)
    progress = Schedule(sweep).progress(lambda number, seed: RunState())
    paths = [*file.space]
    rows = [["trial", *short_setting_names(paths).values()]]
    for number, settings in enumerate(progress.settings[:_MOST_PLANNED_TRIALS]):
        cells = [inline_yaml(settings[path]) for path in paths]
        rows.append([str(number), *cells])
    more = sweep.trials - len(rows) + 1
    runs = sweep.trials * len(sweep.seeds)
    steps = f" of {sweep.train_steps} steps" if sweep.train_steps else ""
    search = file.search
    halving = search.halving
    return [
        *table_lines(rows),
        *([f"… and {more} more"] if more else []),
        "",
        f"{sweep.name}: {sweep.trials} trials ({search.type}), {runs} runs{steps}; "
        f"seeds {', '.join(map(str, sweep.seeds))}",
        *(
            [f"after steps {', '.join(map(str, halving.rungs))}, {halving.keep:g} of them continue"]
            if halving
            else []
        ),
    ]


class TrialNotes:
    """Logs a line for each trial that ends."""

    def __init__(self) -> None:
        self._ended: set[int] | None = None

    def update(self, results: SweepResults) -> None:
        """Logs the trials that have ended since the last call."""
        ended = {trial.number: trial for trial in results.trials if trial.status != "pending"}
        if self._ended is None:
            self._ended = set(ended)
            phase(f"training {format_count(len(results.trials), 'trial')} of {results.experiment}")
            if ended:
                note(f"already ended: {status_counts(results)}")
        for number in sorted(set(ended) - self._ended):
            self._ended.add(number)
            note(_ended_text(results, ended[number], len(self._ended)))


def _ended_text(results: SweepResults, trial: TrialResult, ended: int) -> str:
    best = results.best
    is_best = best is not None and best.number == trial.number
    return (
        f"trial {trial.number} {trial.status} at step {trial.step:,}: {results.objective_name} "
        f"{objective_text(trial)}{', best so far' if is_best else ''}  "
        f"{settings_text(trial, results)}  ({ended} of {len(results.trials)})"
    )
