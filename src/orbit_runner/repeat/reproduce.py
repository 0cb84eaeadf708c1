"""Repeats a run, a sweep or an experiment with a published fingerprint: `runner reproduce`.

Does not import TensorFlow before the run is repeated.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbit_runner import exit_codes
from orbit_runner.checkpoint.latest_checkpoint import checkpoints_of, latest_intact_record
from orbit_runner.compare.histories import RunDiff, compare_runs
from orbit_runner.config.fingerprint import config_fingerprint
from orbit_runner.config.parsing.search_path import experiment_files, names_run
from orbit_runner.config.resolve import Request, ResolvedConfig, resolve
from orbit_runner.config.schedule_length import follow_run
from orbit_runner.determinism.numerics_record import describe_changes, describe_numerics
from orbit_runner.determinism.portable import SETTING, PublishedRun, read_published
from orbit_runner.errors import (
    Diverged,
    Interrupted,
    RunnerError,
    first_line,
    format_count,
    format_list,
)
from orbit_runner.jobs.preflight import check_before_start, setting_error_scope
from orbit_runner.jobs.train_job import Job, prepare_process, run_job
from orbit_runner.repeat.plan import Change, Repetition, read_repetition, require_record
from orbit_runner.repeat.rerun import rerun
from orbit_runner.run_directory.run_reader import read_history
from orbit_runner.sweep.directory import SweepDirectory
from orbit_runner.utils.files import read_json_object
from orbit_runner.utils.log import note
from orbit_runner.utils.signals import describe_exit, exit_signals, run_child
from orbit_runner.utils.user_code import changed_modules, format_names

if TYPE_CHECKING:
    from orbit_runner.jobs.train_job import Progress

_MODE = "train"
# The statuses of the runs of a sweep that are repeated.
_REPEATED = ("finished", "stopped")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A run, compared with its repetition."""

    run: str
    again: str  # new run directory; "" if it was deleted
    start: int | None  # step from which the new run resumed; None for the beginning
    notes: tuple[str, ...]  # reasons for different weights
    error: str  # what ended the new run early; "" if nothing
    parting: RunDiff

    @property
    def equal(self) -> bool:
        """Whether the repetition had the same result."""
        return self.parting.equal and not self.error

    @property
    def verdict(self) -> str:
        """Whether both are equal, and up to which step, in one line."""
        diff = self.parting
        if self.equal:
            count = format_count(len(diff.compared), "checkpoint")
            begin = "" if self.start is None else f", repeated from step {self.start}"
            return f"equal: {count} up to step {diff.step}{begin}"
        if diff.first is None:
            return f"differs: the new run did not reach step {diff.step}"
        what = "the weights" if diff.first == diff.first_weights else "the state, not the weights,"
        since = ", the first checkpoint that was compared"
        if diff.last_equal is not None:
            since = f"; equal up to step {diff.last_equal}"
        return f"differs: {what} at step {diff.first}{since}"


def plan_reproduction(
    run: Path, imports: tuple[str, ...], changes: tuple[Change, ...]
) -> Repetition:
    """Returns the repetition of a run up to its newest checkpoint; does not import TensorFlow.

    A branch is repeated from its beginning. Raises `RunnerError` if the run has no checkpoint to
    start from or to reach.
    """
    steps = read_repetition(run, imports, changes)
    newest = require_record(run, steps.record).step
    branch = steps.history.branch
    start = steps.intact_step(branch.step) if branch else None
    if branch is not None and start in (None, newest):
        raise RunnerError(
            f"{run} branches off at step {branch.step}, and needs intact checkpoints of that step "
            f"and of a later one\navailable steps: "
            f"{', '.join(map(str, steps.history.checkpoints.steps()))}",
            path="RUN",
            code="no-checkpoint",
        )
    return steps.between(start, newest)


def reproduce_run(
    plan: Repetition, directory: Path, progress: Progress
) -> tuple[Reproduction, Exception | None]:
    """Repeats a run in a new directory, and compares the checkpoints of both.

    Returns the comparison, and the error that ended the repetition early, if any. Divergence is a
    result, and not such an error.
    """
    steps = plan.prepared(directory)
    record = require_record(steps.run, steps.record)
    with progress.shown_scope():
        error = rerun(steps, directory, progress)
        progress.phase("comparing checkpoints")
        parting = compare_runs(
            steps.history,
            read_history(directory),
            step=steps.stop,
            after=steps.after,
            summary_interval=steps.config.config.trainer.summary_steps(steps.stop),
        )
    notes = [*steps.reasons]
    again = latest_intact_record(checkpoints_of(directory))
    if again is not None and record.strategy not in ("", again.strategy):
        notes.append(f"strategy: {record.strategy} → {again.strategy}")
    if again is not None and (names := changed_modules(record.code, again.code)):
        notes.append(f"changed code: {format_names(names)}")
    has_diverged = isinstance(error, Diverged)
    kind = "" if has_diverged else f"{type(error).__name__}: "
    result = Reproduction(
        run=str(steps.run),
        again=str(directory),
        start=steps.start,
        notes=tuple(notes),
        error="" if error is None else f"{kind}{first_line(error)}",
        parting=parting,
    )
    return result, None if has_diverged else error


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedReproduction:
    """An experiment, compared with its published fingerprint."""

    experiment: str
    step: int  # last step, as published
    published: str  # SHA-256 of the weights
    weights: str  # the same, computed here
    versions: str  # that the published fingerprint holds for
    notes: tuple[str, ...]  # reasons for different weights that were known before the start
    again: str  # run directory; "" if it was deleted

    @property
    def equal(self) -> bool:
        """Whether the weights are the published ones."""
        return self.weights == self.published

    @property
    def verdict(self) -> str:
        """Whether the weights are equal, in one line."""
        word, has = ("equal", "has") if self.equal else ("differs", "does not have")
        return f"{word}: `{self.experiment}` {has} the published weights at step {self.step}"


def names_published_run(text: str) -> bool:
    """Returns whether `RUN` is the name of an experiment, rather than a run directory.

    Raises `RunnerError` if it has no published fingerprint.
    """
    if text not in experiment_files() or names_run(text):
        return False
    published = read_published().runs
    if text not in published:
        raise RunnerError(
            f"no fingerprint of the experiment {text!r} is published\n"
            f"published: {', '.join(published)}; or specify a run directory",
            path="RUN",
            code="not-a-run",
        )
    return True


def reproduce_published(
    name: str, directory: Path, progress: Progress, imports: tuple[str, ...] = ()
) -> PublishedReproduction:
    """Trains an experiment up to its published step in a new directory, and compares."""
    published = read_published()
    run = published.runs[name]
    resolved = portable_experiment(name, run.step, imports)
    check_before_start(resolved, _MODE, directory, alone=True)
    notes = tuple(_find_notes(resolved, run, published.numerics))
    job = Job(resolved=resolved, config=resolved.config, mode=_MODE, model_dir=directory)
    with progress.shown_scope(), setting_error_scope(resolved):
        if notes:
            progress.note(f"note: differences from what was published:\n{format_list(notes)}")
        progress.phase("importing tensorflow")
        prepare_process(job)
        _, results = run_job(job, progress)
    return PublishedReproduction(
        experiment=name,
        step=run.step,
        published=run.weights,
        weights=results.fingerprint,
        versions=published.versions(),
        notes=notes,
        again=str(directory),
    )


def portable_experiment(name: str, step: int = 0, imports: tuple[str, ...] = ()) -> ResolvedConfig:
    """Returns an experiment with portable numerics. `step` is its last; 0: as configured."""
    flags = [("reproduce", SETTING, "portable")]
    if step:
        flags += [("reproduce", "trainer.train_steps", str(step))]
        flags += [("reproduce", "trainer.train_epochs", "0")]
    return resolve(Request(experiment=name, flags=tuple(flags), imports=imports))


def _find_notes(
    resolved: ResolvedConfig, run: PublishedRun, numerics: Mapping[str, str]
) -> Iterator[str]:
    if run.config != config_fingerprint(follow_run(resolved.config, run.step)):
        yield "the experiment has other settings than the published one"
    yield from describe_changes(numerics, describe_numerics(resolved.config.runtime))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialReproduction:
    """A run of a sweep, compared with its repetition."""

    trial: int
    seed: int
    directory: str  # of the run, relative to that of the sweep
    status: str  # of the run, as in `sweep.json`
    equal: bool | None = None  # None if it was not compared
    verdict: str = ""
    again: str = ""  # new run directory; "" if it was deleted

    @property
    def is_repeated(self) -> bool:
        """Whether the sweep has finished the run, or stopped it by successive halving."""
        return self.status in _REPEATED


def plan_trials(sweep: Path, numbers: Sequence[int] = ()) -> list[TrialReproduction]:
    """Returns the runs of some trials of a sweep, by default all, before they are repeated.

    Raises `RunnerError` if the sweep has no such trial, or none of them has finished.
    """
    path = SweepDirectory(sweep).results
    try:
        runs = [
            TrialReproduction(
                trial=trial["number"],
                seed=run["seed"],
                directory=run["directory"],
                status=run["status"],
                verdict=f"not compared: {run['status']}",
            )
            for trial in read_json_object(path)["trials"]
            for run in trial["runs"]
        ]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise RunnerError(
            f"{path} cannot be read: {first_line(error)}\nthe sweep writes it when a trial ends",
            path="RUN",
            code="unreadable-file",
        ) from None
    if unknown := {*numbers} - {run.trial for run in runs}:
        raise RunnerError(
            f"the sweep has no trial {min(unknown)}\n`runner runs` lists the trials",
            path="--trial",
            code="unknown-name",
        )
    runs = [run for run in runs if not numbers or run.trial in numbers]
    if not any(run.is_repeated for run in runs):
        raise RunnerError(
            "no trial has finished\n`runner runs` lists the trials",
            path="RUN",
            code="nothing-selected",
        )
    return runs


def reproduce_trials(
    sweep: Path,
    runs: Sequence[TrialReproduction],
    model_dir: Path | None = None,
    flags: Sequence[str] = (),
) -> Iterator[TrialReproduction]:
    """Repeats the runs of a sweep one after another, and yields all with what was compared.

    Each has a process of its own, because TensorFlow reads some settings of a trial only once. The
    new run directories are in `model_dir`; None for temporary ones, of which those of equal runs
    are deleted. `flags` are those of `runner reproduce` for each run. Raises `Interrupted` after a
    signal.
    """
    for run in runs:
        if run.is_repeated:
            again = [] if model_dir is None else [f"--model_dir={model_dir / run.directory}"]
            path = os.path.abspath(sweep / run.directory)
            code, text = run_child(["reproduce", path, "--json", "--quiet", *again, *flags])
            number = code - exit_codes.after_signal(0)
            if number in exit_signals():
                raise Interrupted(number, "not all trials were repeated")
            run = dataclasses.replace(run, **_compared(code, json.loads(text or "{}")))
            note(f"{run.directory}: {run.verdict}")
        yield run


def _compared(code: int, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what `--json` of a process says about its run, as fields of the result."""
    if "equal" in values:
        return {name: values[name] for name in ("equal", "verdict", "again")}
    reasons = [str(error["message"]).partition("\n")[0] for error in values.get("errors", ())]
    reason = reasons[0] if reasons else f"the process {describe_exit(code)}"
    return {"verdict": f"not compared: {reason}"}
