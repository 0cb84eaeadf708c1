"""Trains a shipped experiment with portable numerics, and compares it with what is published."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orbit_runner.cli.preflight import check_before_start, setting_error_scope
from orbit_runner.cli.train_job import Job, prepare_process, run_job
from orbit_runner.config.fingerprint import is_fingerprint_of
from orbit_runner.config.parsing.search_path import experiment_files
from orbit_runner.config.resolve import Request, ResolvedConfig, resolve
from orbit_runner.config.schedule_length import follow_run
from orbit_runner.determinism.numerics_record import describe_changes, describe_numerics
from orbit_runner.determinism.portable import SETTING
from orbit_runner.determinism.published_fingerprints import PublishedRun, read_published
from orbit_runner.errors import RunnerError, format_list

_MODE = "train"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedReproduction:
    """An experiment, compared with its published fingerprint."""

    experiment: str
    step: int  # last step, as published
    published: str  # SHA-256 of the weights
    weights: str  # the same, found here
    versions: str  # that the published fingerprint holds for
    notes: tuple[str, ...]  # reasons for different weights that were known before the start
    again: str  # run directory; "" if it was deleted

    @property
    def equal(self) -> bool:
        """Whether the weights are the published ones."""
        return self.weights == self.published

    def as_dict(self) -> dict[str, Any]:
        """Returns the result for `--json`."""
        return {"equal": self.equal, **dataclasses.asdict(self)}


def names_published_run(text: str) -> bool:
    """Returns whether `RUN` is the name of an experiment, rather than a directory.

    Raises `RunnerError` if it has no published fingerprint.
    """
    if Path(text).is_dir() or text not in experiment_files():
        return False
    published = read_published().runs
    if text not in published:
        raise RunnerError(
            f"RUN: no fingerprint of the experiment {text!r} is published\n"
            f"published: {', '.join(published)}; or specify a run directory"
        )
    return True


def reproduce_published(
    name: str, folder: Path, progress: Any, *, imports: tuple[str, ...] = ()
) -> PublishedReproduction:
    """Trains an experiment up to its published step in a new directory, and compares."""
    published = read_published()
    run = published.runs[name]
    resolved = portable_experiment(name, run.step, imports=imports)
    check_before_start(resolved, _MODE, folder)
    notes = tuple(_find_notes(resolved, run, published.numerics))
    with progress.shown_scope(), setting_error_scope(resolved):
        if notes:
            progress.note(f"note: differences from what was published:\n{format_list(notes)}")
        progress.phase("importing tensorflow")
        weights = train_experiment(resolved, folder, progress)
    return PublishedReproduction(
        experiment=name,
        step=run.step,
        published=run.weights,
        weights=weights,
        versions=published.versions(),
        notes=notes,
        again=str(folder),
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


def train_experiment(resolved: ResolvedConfig, folder: Path, progress: Any) -> str:
    """Trains an experiment. Returns the SHA-256 of the weights."""
    job = Job(
        resolved=resolved,
        config=resolved.config,
        mode=_MODE,
        model_dir=folder,
        cluster=None,
        asynchronous=True,
        allow_partial=False,
    )
    prepare_process(job)
    _, results = run_job(job, progress)
    weights: str = results.fingerprint
    return weights


def _find_notes(resolved: ResolvedConfig, run: PublishedRun, numerics: Any) -> Iterator[str]:
    if not is_fingerprint_of(run.config, follow_run(resolved.config, run.step)):
        yield "the experiment has other settings than the published one"
    yield from describe_changes(numerics, describe_numerics(resolved.config.runtime))


def print_published_reproduction(result: PublishedReproduction) -> None:
    """Prints the verdict and its details on standard output."""
    has = "has the published weights" if result.equal else "does not have the published weights"
    verdict = "equal" if result.equal else "differs"
    print(f"{verdict}: `{result.experiment}` {has} at step {result.step}")
    for name, value in _rows(result):
        print(f"  {name:<12} {value}")


def _rows(result: PublishedReproduction) -> Iterator[tuple[str, str]]:
    yield "weights", f"sha256 {result.weights}"
    if not result.equal:
        yield "published", f"sha256 {result.published}"
    yield "holds for", result.versions
    for note in result.notes:
        yield "note", note
    if result.again:
        yield "new run", result.again
