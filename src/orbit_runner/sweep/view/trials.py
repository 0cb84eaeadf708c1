"""Texts and tables about the trials of a sweep, for its page and the terminal."""

from __future__ import annotations

import dataclasses
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from orbit_runner.compare.statistics import estimate, estimate_text, paired_test, verdict
from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.config.serialize import inline_yaml, short_setting_names
from orbit_runner.errors import format_count
from orbit_runner.reporting.document import Section, Table
from orbit_runner.reporting.terminal import section_lines
from orbit_runner.sweep.definition import new_sweep
from orbit_runner.sweep.directory import SweepDirectory
from orbit_runner.sweep.results import TRIAL_STATUSES, SweepResults, TrialResult
from orbit_runner.sweep.run_state import RunState
from orbit_runner.sweep.schedule import Schedule
from orbit_runner.sweep.sweep_file import SweepFile
from orbit_runner.utils.log import note, phase
from orbit_runner.utils.streams import print_result
from orbit_runner.utils.text_table import table_lines


@dataclasses.dataclass(frozen=True)
class SweptSetting:
    """A setting that differs between trials.

    Attributes:
        path: Its dotted path.
        name: The shortest end of the path that no other setting of the sweep has.
        is_log: Whether its axis is logarithmic.
        categories: Its values if they are a choice, in the order of the sweep file; empty if they
            are numbers from a range.
    """

    path: str
    name: str
    is_log: bool = False
    categories: tuple[object, ...] = ()


def swept_settings(results: SweepResults) -> list[SweptSetting]:
    """Returns the settings of which trials have at least two values."""
    swept = []
    for path, name in results.setting_names.items():
        values = [trial.settings[path] for trial in results.trials if path in trial.settings]
        distinct = list({inline_yaml(value): value for value in values}.values())
        if len(distinct) < 2:
            continue
        entry = results.space[path]
        if isinstance(entry, Mapping):
            is_log = bool("log_uniform" in entry or entry.get("log"))
            swept.append(SweptSetting(path, name, is_log))
        else:
            categories = tuple(value for value in entry if value in distinct)
            swept.append(SweptSetting(path, name, categories=categories))
    return swept


def train_again(directory: Path) -> str:
    """Returns the command that trains the best trial again, in a directory of its own."""
    config = shlex.quote(str(SweepDirectory(directory).best))
    return f"runner --experiment={config} --model_dir=runs/best"


def value_text(value: object) -> str:
    """Returns the value of a setting on one line; a float with four significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else inline_yaml(value)


def settings_text(trial: TrialResult, results: SweepResults) -> str:
    """Returns settings under short names, such as `learning_rate=0.003 filters=[32, 64]`."""
    return " ".join(
        f"{name}={value_text(trial.settings[path])}"
        for path, name in results.setting_names.items()
        if path in trial.settings
    )


def objective_text(trial: TrialResult) -> str:
    """Returns the objective, such as `0.9713 ± 0.0021`; `-` if the trial has none."""
    return "-" if trial.objective is None else estimate_text(estimate(trial.objectives))


def status_counts(results: SweepResults) -> str:
    """Returns the number of trials of each status, such as `16 finished, 2 diverged`."""
    counts = Counter(trial.status for trial in results.trials)
    return ", ".join(f"{counts[status]} {status}" for status in TRIAL_STATUSES if counts[status])


def counts_text(results: SweepResults) -> str:
    """Returns the number of trials, such as `18 trials: 16 finished, 2 diverged`."""
    trials = format_count(len(results.trials), "trial")
    return f"{trials}: {status_counts(results)}" if results.trials else trials


def trial_table(results: SweepResults, trials: Sequence[TrialResult]) -> Table:
    """Returns a row for each trial: number, status, objective, settings, step and weights."""
    names = results.setting_names
    deviation = " (mean ± standard deviation)" if len(results.seeds) > 1 else ""
    head = ("trial", "status", f"{results.objective_name}{deviation}", *names.values())
    rows = [
        (
            str(trial.number),
            trial.status,
            objective_text(trial),
            *(value_text(trial.settings[p]) if p in trial.settings else "-" for p in names),
            f"{trial.step:,}",
            (trial.runs[0].weights[:12] if len(trial.runs) == 1 else "") or "-",
        )
        for trial in trials
    ]
    return Table(rows, (*head, "step", "weights"), right=(2, -2), fits=True)


def lead_text(results: SweepResults) -> str:
    """Returns a sentence on whether the lead of the best trial could be chance.

    It compares the seeds of which both the best and the next trial have an objective; "" if there
    are fewer than two.
    """
    finished = [trial for trial in results.ranked if trial.status == "finished"]
    if len(finished) < 2 or finished[1].objective is None:
        return ""
    best, second = finished[:2]
    values, others = (
        {run.seed: run.objective for run in trial.runs if run.objective is not None}
        for trial in (best, second)
    )
    seeds = [seed for seed in others if seed in values]
    if len(seeds) < 2:
        return ""
    test = paired_test([others[seed] for seed in seeds], [values[seed] for seed in seeds])
    return f"trial {best.number} against trial {second.number}, the next best: {verdict(test)}"


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
    yield f"page    {SweepDirectory(directory).page}"
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
