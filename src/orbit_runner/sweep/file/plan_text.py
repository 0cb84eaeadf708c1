"""The settings of the first trials as a table, for `runner sweep --dry_run`."""

from __future__ import annotations

from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.config.serialize import inline_yaml
from orbit_runner.sweep.file.check import new_sweep
from orbit_runner.sweep.file.sweep_file import SweepFile
from orbit_runner.sweep.run_state import RunState
from orbit_runner.sweep.schedule import Schedule
from orbit_runner.sweep.view.ranking import repeats_text
from orbit_runner.utils.text_table import table_lines

_MOST_TRIALS = 20


def format_plan(file: SweepFile, base: ResolvedConfig) -> list[str]:
    """Returns the lines of the table, and what the sweep does."""
    sweep = new_sweep(file, base)
    found = Schedule(sweep).progress(lambda number, seed: RunState())
    paths = [one.path for one in file.space]
    names = [path.rpartition(".")[2] for path in paths]
    rows = [
        ["trial", *(n if names.count(n) == 1 else p for n, p in zip(names, paths, strict=True)), ""]
    ]
    trials = found.results.trials
    for number, settings in enumerate(found.settings[:_MOST_TRIALS]):
        cells = [inline_yaml(settings[path]) if path in settings else "-" for path in paths]
        first = trials[number].same_as
        rows.append([str(number), *cells, "" if first is None else f"same as trial {first}"])
    more = sweep.trials - len(rows) + 1
    repeats = repeats_text(found.results)
    trained = sum(trial.same_as is None for trial in trials)
    runs = trained * len(sweep.seeds)
    steps = f" of {sweep.last_step} steps" if sweep.last_step else ""
    search = file.search
    halving = search.halving
    return [
        *table_lines(rows),
        *([f"… and {more} more"] if more else []),
        *(["", repeats] if repeats else []),
        "",
        f"{sweep.name}: {sweep.trials} trials ({search.type}), {runs} runs{steps}; "
        f"seeds {', '.join(map(str, sweep.seeds))}",
        *(
            [f"after steps {', '.join(map(str, halving.rungs))}, {halving.keep:g} of them continue"]
            if halving
            else []
        ),
    ]
