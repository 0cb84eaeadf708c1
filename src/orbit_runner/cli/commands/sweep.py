"""`runner sweep`: runs of one experiment with different settings, in one directory."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

from orbit_runner import exit_codes
from orbit_runner.cli.command import Command
from orbit_runner.cli.flags.config_flags import IMPORT, PROGRESS_FLAGS
from orbit_runner.cli.flags.rows import JSON, flag, switch
from orbit_runner.cli.flags.values import MODEL_DIR, SWEEP_FILE, Count
from orbit_runner.config.parsing.search_path import find_file
from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.errors import RunnerError
from orbit_runner.sweep.definition import check_space, resolve_base
from orbit_runner.sweep.directory import SweepDirectory, open_sweep, write_best
from orbit_runner.sweep.results import SweepResults
from orbit_runner.sweep.sweep_file import SweepFile, read_sweep_file
from orbit_runner.utils.streams import print_message, print_result

_DESCRIPTION = """\
Run the trials of a sweep file: an experiment, a space of settings, an objective and a search. Each
trial is an ordinary run directory in DIR/trials. The results are in DIR/sweep.json, and the config
of the best trial in DIR/best.yaml.

Any number of `runner sweep` processes may work on one directory, also on several machines. If one
is killed, run the same command again: the sweep continues, and its results are the same as without
the interruption. The exit code is 1 if a trial failed."""


def main(flags: argparse.Namespace) -> int:
    """Trains the trials of a sweep. Returns the exit code."""
    file, base = load_sweep(flags)
    if flags.dry_run:
        return _print_plan(file, base)
    if not flags.model_dir:
        raise RunnerError(
            "is not set; it is the directory of the sweep", path="--model_dir", code="not-set"
        )
    try:
        return _run(flags, file, base)
    except OSError as error:
        message = f"cannot write {error.filename or flags.model_dir}: {error}"
        raise RunnerError(
            message, path="--model_dir", code="not-writable", exit_code=exit_codes.CRASHED
        ) from error


def load_sweep(flags: argparse.Namespace) -> tuple[SweepFile, ResolvedConfig]:
    """Reads and checks the sweep file of the flags.

    Returns the sweep and its experiment without the space. Raises ConfigError with all problems of
    the file.
    """
    imports = tuple(flags.imports or ())
    file = read_sweep_file(find_file(flags.sweep_file), flags.sweep_file, imports)
    base = resolve_base(file)
    check_space(file, base)
    return file, base


def _run(flags: argparse.Namespace, file: SweepFile, base: ResolvedConfig) -> int:
    from orbit_runner.reporting.progress.lines import make_progress
    from orbit_runner.sweep.view.page import SweepPage
    from orbit_runner.sweep.view.trials import TrialNotes, print_summary
    from orbit_runner.sweep.worker import Worker
    from orbit_runner.utils.signals import SignalGuard

    directory = SweepDirectory(Path(flags.model_dir))
    signals = SignalGuard()
    with signals.installed_scope(), contextlib.ExitStack() as stack:
        load = open_sweep(directory, file, base, signals)
        if signals.received is not None:
            return exit_codes.after_signal(signals.received)
        progress = make_progress(flags.progress, title="sweep", place=flags.model_dir)
        stack.enter_context(progress.shown_scope())
        notes = TrialNotes()
        page = SweepPage(directory.path)

        def show(results: SweepResults) -> None:
            notes.update(results)
            page.update(results)

        worker = Worker(
            load,
            directory,
            jobs=flags.jobs,
            devices_per_job=flags.devices_per_job,
            signals=signals,
            show=show,
        )
        results = worker.run()
    if signals.received is not None:
        _print_continuation(flags)
        return exit_codes.after_signal(signals.received)
    write_best(directory, results)
    page.write(results)
    print_summary(directory.path, results, as_json=flags.json)
    return exit_codes.CRASHED if any(trial.status == "failed" for trial in results.trials) else 0


def _print_continuation(flags: argparse.Namespace) -> None:
    from orbit_runner.cli.continuation import format_continuation

    print_message("runner: the trials were stopped")
    print_message(format_continuation(flags.model_dir, ["runner", *sys.argv[1:]]))


def _print_plan(file: SweepFile, base: ResolvedConfig) -> int:
    from orbit_runner.sweep.view.trials import format_plan

    print_result("\n".join(format_plan(file, base)))
    return 0


_FLAGS = (
    flag("sweep_file", "sweep file, such as configs/sweeps/digits_mlp.yaml", type=SWEEP_FILE),
    flag("--model_dir", "directory of the sweep", type=MODEL_DIR),
    flag("--jobs=N", "number of trials at a time", type=Count(1, 1000), default=1),
    flag(
        "--devices_per_job=K",
        "number of GPUs for each trial; 0: all trials see all GPUs",
        type=Count(0, 1000),
        default=0,
    ),
    switch("--dry_run", "print the settings of the first trials, and exit"),
    IMPORT,
    *PROGRESS_FLAGS,
    JSON,
)
COMMAND = Command(
    "sweep", _DESCRIPTION, _FLAGS, ["configs/sweeps/digits_mlp.yaml --model_dir=runs/a"], main
)
