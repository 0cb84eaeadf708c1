"""Repeats a run, or an experiment with a published fingerprint, and compares: `runner reproduce`.

Does not import TensorFlow before the run is repeated.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.checkpoint.latest_checkpoint import checkpoints_of, latest_intact_record
from orbit_runner.compare.histories import compare_runs
from orbit_runner.config.fingerprint import config_fingerprint
from orbit_runner.config.parsing.search_path import experiment_files, names_run
from orbit_runner.config.resolve import Request, ResolvedConfig, resolve
from orbit_runner.config.schedule_length import follow_run
from orbit_runner.determinism.numerics_record import describe_changes, describe_numerics
from orbit_runner.determinism.portable import SETTING, PublishedRun, read_published
from orbit_runner.errors import RunnerError, format_list
from orbit_runner.jobs.branch import branch_point_scope
from orbit_runner.jobs.preflight import check_before_start, setting_error_scope
from orbit_runner.jobs.reference_run import (
    OriginalRun,
    check_data,
    copy_checkpoint,
    difference_reasons,
    limit_steps,
    repeat_run,
)
from orbit_runner.jobs.train_job import Job, prepare_process, run_job
from orbit_runner.reporting.reproduction import Reproduction
from orbit_runner.run_directory.branch import read_branch
from orbit_runner.run_directory.history import read_history
from orbit_runner.utils.user_code import changed_modules, format_names

if TYPE_CHECKING:
    from orbit_runner.jobs.train_job import Progress

_MODE = "train"


def reproduce_run(
    original: OriginalRun, directory: Path, progress: Progress
) -> tuple[Reproduction, Exception | None]:
    """Repeats a run in a new directory, and compares the checkpoints of both.

    Returns the comparison, and the error that ended the repetition early, if any. Divergence is a
    result, and not such an error.
    """
    limited = limit_steps(original.resolved, original.record.step)
    check_before_start(limited, original.history.mode, directory, alone=True)
    history = original.history
    resolved = original.resolved
    data = check_data(resolved, history.folder)
    if original.start is not None:
        with _source_scope(original) as source:
            copy_checkpoint(checkpoints_of(source), original.start, directory)
    reasons = difference_reasons(
        history, resolved.config.runtime, original.record, same_config=original.same_config
    )
    differences = [*reasons, *data.notes()]
    with progress.shown_scope():
        if differences:
            progress.note(
                f"note: differences from the original run in {history.folder}:\n"
                f"{format_list(differences)}"
            )
        return _repeat_and_compare(original, directory, progress, differences)


@contextlib.contextmanager
def _source_scope(original: OriginalRun) -> Iterator[Path]:
    """Yields a run directory with the checkpoint to start from: the run, unless it removed it."""
    run = original.history.folder
    branch = read_branch(run)
    if branch is None or original.start != branch.step:
        yield run
        return
    with branch_point_scope(run, branch) as source:
        yield source


def _repeat_and_compare(
    original: OriginalRun, directory: Path, progress: Progress, differences: list[str]
) -> tuple[Reproduction, Exception | None]:
    history = original.history
    record = original.record
    after = original.after
    rerun_result = repeat_run(
        original.resolved, history, directory, progress, step=record.step, after=after
    )
    progress.phase("comparing checkpoints")
    parting = compare_runs(
        history,
        read_history(directory),
        step=record.step,
        after=after,
        summary_interval=original.resolved.config.trainer.summary_interval,
    )
    if record.strategy not in ("", rerun_result.strategy):
        differences = [*differences, f"strategy: {record.strategy} → {rerun_result.strategy}"]
    again = latest_intact_record(checkpoints_of(directory))
    if again is not None and (names := changed_modules(record.code, again.code)):
        differences = [*differences, f"changed code: {format_names(names)}"]
    result = Reproduction(
        run=str(history.folder),
        again=str(directory),
        start=original.start,
        notes=tuple(differences),
        error=rerun_result.error_text,
        parting=parting,
    )
    return result, None if rerun_result.has_diverged else rerun_result.error


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

    def as_dict(self) -> dict[str, object]:
        """Returns the result for `--json`."""
        return {"equal": self.equal, **dataclasses.asdict(self)}


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
    name: str, directory: Path, progress: Progress, *, imports: tuple[str, ...] = ()
) -> PublishedReproduction:
    """Trains an experiment up to its published step in a new directory, and compares."""
    published = read_published()
    run = published.runs[name]
    resolved = portable_experiment(name, run.step, imports=imports)
    check_before_start(resolved, _MODE, directory, alone=True)
    notes = tuple(_find_notes(resolved, run, published.numerics))
    with progress.shown_scope(), setting_error_scope(resolved):
        if notes:
            progress.note(f"note: differences from what was published:\n{format_list(notes)}")
        progress.phase("importing tensorflow")
        weights = train_experiment(resolved, directory, progress)
    return PublishedReproduction(
        experiment=name,
        step=run.step,
        published=run.weights,
        weights=weights,
        versions=published.versions(),
        notes=notes,
        again=str(directory),
    )


def portable_experiment(
    name: str, step: int = 0, *, imports: tuple[str, ...] = ()
) -> ResolvedConfig:
    """Returns an experiment with portable numerics. `step` is its last; 0: as configured."""
    flags = [("reproduce", SETTING, "portable")]
    if step:
        flags += [("reproduce", "trainer.train_steps", str(step))]
        flags += [("reproduce", "trainer.train_epochs", "0")]
    return resolve(Request(experiment=name, flags=tuple(flags), imports=imports))


def train_experiment(resolved: ResolvedConfig, directory: Path, progress: Progress) -> str:
    """Trains an experiment. Returns the SHA-256 of the weights."""
    job = Job(
        resolved=resolved,
        config=resolved.config,
        mode=_MODE,
        model_dir=directory,
    )
    prepare_process(job)
    _, results = run_job(job, progress)
    weights: str = results.fingerprint
    return weights


def _find_notes(
    resolved: ResolvedConfig, run: PublishedRun, numerics: Mapping[str, str]
) -> Iterator[str]:
    if run.config != config_fingerprint(follow_run(resolved.config, run.step)):
        yield "the experiment has other settings than the published one"
    yield from describe_changes(numerics, describe_numerics(resolved.config.runtime))
