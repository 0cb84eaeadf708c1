"""The trials of a sweep as text: progress, a table for terminals, the plan of a dry run."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.config.serialize import inline_yaml, short_setting_names
from orbit_runner.errors import format_count
from orbit_runner.reporting.document import Section
from orbit_runner.reporting.progress.lines import make_progress
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


class TrialProgress:
    """Shows trials that have ended, how many there are, and which run.

    Args:
        kind: A value of `--progress`.
        interval: The seconds between lines that report that the sweep is still running.
        place: The directory of the sweep, which a live display shows.
    """

    def __init__(self, kind: str = "auto", *, interval: float = 10.0, place: str = "") -> None:
        self._progress = make_progress(kind, interval=interval, title="sweep", place=place)
        self._ended: set[int] | None = None

    @contextlib.contextmanager
    def shown_scope(self) -> Iterator[None]:
        """Shows progress and log messages within a `with` block."""
        with self._progress.shown_scope():
            yield

    def update(self, results: SweepResults, running: Mapping[int, str]) -> None:
        """Shows the trials that have ended since the last call.

        `running` is what each trial that is being trained does, by its number.
        """
        ended = {trial.number: trial for trial in results.trials if trial.status != "pending"}
        trials = len(results.trials)
        if self._ended is None:
            self._ended = set(ended)
            count = format_count(trials, "trial")
            self._progress.phase(f"training {count} of {results.experiment}")
            if ended:
                self._progress.note(f"already ended: {status_counts(results)}")
        for number in sorted(set(ended) - self._ended):
            self._ended.add(number)
            self._report_trial(results, ended[number], len(self._ended))
        active = "; ".join(f"trial {number}: {text}" for number, text in running.items())
        fraction = len(ended) / trials if trials else 0.0
        self._progress.detail(f"{len(ended)} of {trials} ended; {active}".rstrip("; "), fraction)

    def _report_trial(self, results: SweepResults, trial: TrialResult, ended: int) -> None:
        best = results.best
        is_best = best is not None and best.number == trial.number
        values = settings_text(trial, results)
        self._progress.note(
            f"trial {trial.number} {trial.status} at step {trial.step:,}: {results.objective_name} "
            f"{objective_text(trial)}{', best so far' if is_best else ''}  {values}  "
            f"({ended} of {len(results.trials)})"
        )
