"""The records of a run that is resumed: what was written of steps that are taken again goes."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from orbit_runner.run_directory.data_record import DataRecord, fingerprint_of
from orbit_runner.utils.files import cut_records, recorded_steps, remove_leftovers, repair_records

if TYPE_CHECKING:
    from orbit_runner.train.run import Run

FINGERPRINTS = "checkpoints/fingerprints.jsonl"
RECORDS = "metrics.jsonl"


def prepare_records(run: Run) -> None:
    """Drops the records of steps after the current one; for the chief alone."""
    remove_leftovers(run.model_dir)
    records, note = run.model_dir / RECORDS, run.observer.note
    for path in (records, run.model_dir / FINGERPRINTS):
        repair_records(path, note)
    if run.checkpoints.fell_back and records.exists():
        # They may be all that is left of a run whose checkpoints were removed.
        kept = records.with_name(f"{RECORDS}.before-step-{run.step}")
        shutil.copyfile(records, kept)
        note(f"the records of later steps are kept in {kept}")
    for path in (records, run.model_dir / FINGERPRINTS):
        cut_records(path, after=run.step)


def has_evaluation(run: Run) -> bool:
    """Returns whether the result of an evaluation at the current step is on record."""
    return (run.step, "validation") in recorded_steps(run.model_dir / RECORDS)


def record_data(run: Run) -> None:
    """Writes `data.json`; a change is a note, as is a change of the config."""
    record = DataRecord(run.model_dir, fingerprint_of(run.config.task))
    if not run.restored:
        record = record.of_new_run()
    for note in record.notes():
        run.observer.note(note)
    record.ready(run.step)
