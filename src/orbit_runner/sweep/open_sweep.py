"""Opens the directory of a sweep: creates a new one, or extends and changes an existing one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping

from orbit_runner.config.fingerprint import can_affect_weights
from orbit_runner.config.resolve import ResolvedConfig, resolve
from orbit_runner.config.schedule_length import follow_run
from orbit_runner.config.serialize import differences
from orbit_runner.errors import RunnerError, format_list
from orbit_runner.sweep.definition import Sweep, new_sweep, request_of, seeds_of
from orbit_runner.sweep.directory import (
    SweepDirectory,
    add_change,
    apply_changes,
    check_file,
    extend_sweep,
    read_changes,
    read_original_values,
    write_file,
)
from orbit_runner.sweep.run_state import RunState, RunStates
from orbit_runner.sweep.schedule import Schedule, SweepProgress
from orbit_runner.sweep.sweep_file import SweepFile
from orbit_runner.sweep.trial_process import TrialLauncher
from orbit_runner.sweep.worker import check_first_trial
from orbit_runner.utils.log import note
from orbit_runner.utils.signals import Signals


@dataclasses.dataclass(frozen=True, kw_only=True)
class Changes:
    """Changes that the command line requests.

    Attributes:
        more_steps: The number of additional steps of each trial; 0 for no change.
        exclude: Trials to leave out of the results.
        force: Trials to train beyond each rung, or again if they failed.
    """

    more_steps: int = 0
    exclude: tuple[int, ...] = ()
    force: tuple[int, ...] = ()


def open_sweep(
    directory: SweepDirectory,
    file: SweepFile,
    base: ResolvedConfig,
    changes: Changes,
    launcher: TrialLauncher,
    imports: tuple[str, ...],
    signals: Signals,
    cores: tuple[int, ...] = (),
) -> Callable[[], Sweep]:
    """Creates the directory, or checks that it belongs to this sweep, and records changes.

    `cores` are those of a trial, empty for all.

    Returns a function that returns the sweep with all changes that any process has recorded.
    Raises RunnerError if the directory belongs to another sweep, or a change is not possible.
    """
    check_file(directory, file, base)  # Before the lock creates the directory.
    sweep = new_sweep(file, base)
    with directory.acquire_settings_lock():
        check_file(directory, file, base)
        if not directory.file.exists():
            _refuse_changes(changes, directory)
            first = Schedule(sweep).progress(lambda number, seed: RunState())
            check_first_trial(sweep, directory, first, launcher, imports, signals, cores)
            if signals.received is None:
                write_file(directory, file, base)

        def load() -> Sweep:
            return apply_changes(_original_sweep(directory, sweep, base), read_changes(directory))

        if signals.received is None:
            now = extend_sweep(directory, load(), file, seeds_of(file, base.config))
            _record_changes(directory, now, base, changes)
    return load


def _original_sweep(directory: SweepDirectory, sweep: Sweep, base: ResolvedConfig) -> Sweep:
    """Returns the sweep as it began: the file may have more trials and seeds by now."""
    values = read_original_values(directory)
    before = values["seeds"]
    given = before if isinstance(before, int) else tuple(before)
    seeds = seeds_of(dataclasses.replace(sweep.file, seeds=given), base.config)
    budgets = (values["search"]["trials"],)
    return dataclasses.replace(sweep, seeds=seeds, first_seeds=len(seeds), budgets=budgets)


def _refuse_changes(changes: Changes, directory: SweepDirectory) -> None:
    if changes != Changes():
        raise RunnerError(
            f"{directory.path} contains no sweep yet\n"
            "start it without --exclude, --force and --more_steps",
            path="--model_dir",
            code="no-effect",
        )


def _record_changes(
    directory: SweepDirectory, sweep: Sweep, base: ResolvedConfig, changes: Changes
) -> None:
    """Records the changes that the command line requests, all or none. The lock must be held."""
    for flag, numbers in (("exclude", changes.exclude), ("force", changes.force)):
        for number in numbers:
            if not 0 <= number < sweep.trials:
                most = sweep.trials - 1
                raise RunnerError(
                    f"got {number}, allowed: trials from 0 to {most}",
                    path=f"--{flag}",
                    code="out-of-range",
                )
    progress = _read_progress(directory, sweep)
    for flag, numbers in (("exclude", changes.exclude), ("force", changes.force)):
        for number in numbers:
            first = progress.results.trials[number].same_as
            if first is not None:
                raise RunnerError(
                    f"trial {number} has the settings of trial {first}, and is not "
                    f"trained again\nuse --{flag}={first}",
                    path=f"--{flag}",
                    code="set-twice",
                )
    new_changes = [*_new_changes(sweep, changes)]
    for number in changes.force:
        _check_forced(sweep, progress, number)
    if changes.more_steps and _is_new_length(directory, progress, changes.more_steps):
        _check_more_steps(sweep, base, changes.more_steps)
        new_changes.append({"more_steps": changes.more_steps})
    for change in new_changes:
        add_change(directory, change)
    for number in changes.force:
        for seed in sweep.seeds:
            directory.failure(sweep.run_name(number, seed)).unlink(missing_ok=True)


def _new_changes(sweep: Sweep, changes: Changes) -> Iterator[Mapping[str, object]]:
    yield from ({"exclude": n} for n in changes.exclude if n not in sweep.excluded)
    yield from ({"force": n} for n in changes.force if n not in sweep.forced)


def _read_progress(directory: SweepDirectory, sweep: Sweep) -> SweepProgress:
    states = RunStates()
    return Schedule(sweep).progress(
        lambda number, seed: states.read(
            directory.path / sweep.run_directory(number, seed),
            directory.failure(sweep.run_name(number, seed)),
        )
    )


def _check_forced(sweep: Sweep, progress: SweepProgress, number: int) -> None:
    status = progress.results.trials[number].status
    if status == "failed" and sweep.file.search.learns:
        raise RunnerError(
            f"trial {number} failed, and {sweep.file.search.type} has learned from that\n"
            "its result would change the settings of later trials; use a new --model_dir",
            path="--force",
            code="not-repeatable",
        )
    if status == "diverged":
        note(f"note: trial {number} diverged; training it again gives the same result")


def _is_new_length(directory: SweepDirectory, progress: SweepProgress, more: int) -> bool:
    """Returns whether `more` is a new request: a stopped command may be repeated to resume."""
    lengths = [change["more_steps"] for change in read_changes(directory) if "more_steps" in change]
    if lengths and lengths[-1] == more and not progress.is_finished:
        note(f"note: --more_steps={more} is already recorded; the trials continue")
        return False
    return True


def _check_more_steps(sweep: Sweep, base: ResolvedConfig, more: int) -> None:
    """Raises RunnerError if a longer training would change the steps before it."""
    if not sweep.last_step or any(
        dimension.path == "trainer.train_steps" for dimension in sweep.file.space
    ):
        raise RunnerError(
            "requires trainer.train_steps, the same for all trials",
            path="--more_steps",
            code="not-set",
        )
    steps = sweep.last_step + more
    longer = resolve(
        request_of(sweep.file, {"trainer.train_steps": steps}, tuple(base.config.imports))
    )
    now = follow_run(base.config, sweep.last_step)
    lines = [
        f"{difference.path}: {difference.left} → {difference.right}"
        for difference in differences(now, follow_run(longer.config, steps))
        if can_affect_weights(difference.path, base.config)
    ]
    if lines:
        raise RunnerError(
            "other settings depend on trainer.train_steps, so the trained steps "
            f"would not be those of a longer training:\n{format_list(lines)}\nstart a new sweep",
            path="--more_steps",
            code="not-supported",
        )
