"""Prepares the records of a run that is resumed: removes those of steps that will be repeated."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.utils.files import cut_records, recorded_steps, remove_leftovers, repair_records


def prepare_records(
    directory: RunDirectory, step: int, note: Callable[[str], None], *, keep_metrics: bool
) -> None:
    """Removes the records after `step`, and repairs files that were cut off.

    The process must hold the lock of the run. `step` is the global step that the run resumes from.
    `note` is called with a message for each file that is repaired or copied. If
    `keep_metrics`, the metrics are copied first: they may be all that is left of a run whose
    checkpoints were removed.
    """
    remove_leftovers(directory.path)
    records = directory.metrics
    for path in (records, directory.fingerprints):
        repair_records(path, note)
    if keep_metrics and records.exists():
        kept = records.with_name(f"{records.name}.before-step-{step}")
        shutil.copyfile(records, kept)
        note(f"the records of later steps are kept in {kept}")
    for path in (records, directory.fingerprints):
        cut_records(path, after=step)


def has_evaluation(directory: RunDirectory, step: int) -> bool:
    """Returns whether the result of an evaluation at a global step is recorded."""
    return (step, "validation") in recorded_steps(directory.metrics)
