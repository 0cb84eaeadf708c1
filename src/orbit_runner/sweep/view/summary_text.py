"""The results of a sweep as text, printed when it ends."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from orbit_runner.sweep.results import SweepResults
from orbit_runner.sweep.view.files import PAGE_FILE
from orbit_runner.sweep.view.page import BEST_CONFIG
from orbit_runner.sweep.view.ranking import (
    lead_text,
    objective_of,
    rank_trials,
    repeats_text,
    status_counts,
)
from orbit_runner.sweep.view.trial_table import trial_lines
from orbit_runner.utils.streams import use_utf8

_MOST_TRIALS = 10


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
    trials = f"{len(results.trials)} trial{'' if len(results.trials) == 1 else 's'}"
    yield f"{results.experiment}: {trials}{f': {counts}' if counts else ''}"
    yield from filter(None, [repeats_text(results)])
    shown = [trial for trial in rank_trials(results) if objective_of(trial) is not None][
        :_MOST_TRIALS
    ]
    if shown:
        yield ""
        yield from trial_lines(results, shown, width, interval=len(results.seeds) > 1)
    best = results.best
    if best is None:
        yield f"no trial has finished with a value of {results.metric}"
        return
    if len(results.seeds) > 1:
        yield ""
        yield f"mean ± standard deviation [95 % interval] over {len(results.seeds)} seeds"
    lead = lead_text(results)
    if lead:
        yield lead
    yield ""
    yield f"page    {directory / PAGE_FILE}"
    config = shlex.quote(str(directory / BEST_CONFIG))
    yield f"winner  runner --experiment={config} --model_dir=runs/best"
