"""The trials of a sweep as text: a table for terminals, the results, the plan of a dry run."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.config.serialize import inline_yaml, short_setting_names
from orbit_runner.errors import format_count
from orbit_runner.reporting.document import Section
from orbit_runner.reporting.terminal import section_lines
from orbit_runner.sweep.definition import new_sweep
from orbit_runner.sweep.results import SweepResults
from orbit_runner.sweep.run_state import RunState
from orbit_runner.sweep.schedule import Schedule
from orbit_runner.sweep.sweep_file import SweepFile
from orbit_runner.sweep.view.page import BEST_CONFIG, PAGE_FILE
from orbit_runner.sweep.view.ranking import (
    lead_text,
    objective_of,
    rank_trials,
    status_counts,
    trial_table,
)
from orbit_runner.utils.streams import use_utf8
from orbit_runner.utils.text_table import table_lines

_MOST_SUMMARY_TRIALS = 10


def print_summary(directory: Path, results: SweepResults, *, as_json: bool = False) -> None:
    """Prints the results of a sweep on standard output, or `sweep.json` if `as_json`."""
    use_utf8()
    if as_json:
        print(results.to_json(), end="")
        return
    width = shutil.get_terminal_size((120, 24)).columns
    print("\n".join(summary_lines(directory, results, width)))


def summary_lines(directory: Path, results: SweepResults, width: int) -> Iterator[str]:
    """Yields the lines: counts, the ten best trials, how far the best is ahead, and what to do."""
    counts = status_counts(results)
    trials = format_count(len(results.trials), "trial")
    yield f"{results.experiment}: {trials}{f': {counts}' if counts else ''}"
    shown = [trial for trial in rank_trials(results) if objective_of(trial) is not None][
        :_MOST_SUMMARY_TRIALS
    ]
    if shown:
        yield ""
        yield from section_lines([Section("", [trial_table(results, shown)])], width)
    best = results.best
    if best is None:
        yield f"no trial has finished with a value of {results.metric}"
        return
    yield ""
    if lead := lead_text(results):
        yield lead
    yield f"page    {directory / PAGE_FILE}"
    config = shlex.quote(str(directory / BEST_CONFIG))
    yield f"winner  runner --experiment={config} --model_dir=runs/best"


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
