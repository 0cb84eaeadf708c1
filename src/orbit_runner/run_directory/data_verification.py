"""Verifies that the files that a run has read are unchanged, by reading all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from orbit_runner.config.resolve import Request, resolve
from orbit_runner.data.fingerprint import DataDifference, DataFile, compare, compute_digest
from orbit_runner.data.text.lines import compute_text_digest
from orbit_runner.data.tfrecord.framing import scan
from orbit_runner.errors import DataError, RunnerError
from orbit_runner.run_directory.data_record import NAME, fingerprint_of, read_record
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.storage.staged_config import localize
from orbit_runner.utils.log import phase


@dataclasses.dataclass(frozen=True)
class DataVerification:
    """The result of verifying the data of a run."""

    files: int  # The number of files that were read.
    difference: DataDifference  # From the record; damaged files count as changes.
    read: bool  # Whether the contents of all files could be compared.

    @property
    def is_intact(self) -> bool:
        """Whether the data is unchanged."""
        return not self.difference.changes


def verify_data(run: Path) -> DataVerification:
    """Reads all files of a run's data and compares them with its record.

    Raises `RunnerError` if the run has no readable record of its data, or its config does not load.
    """
    try:
        before, _ = read_record(run)
    except FileNotFoundError:
        raise RunnerError(
            f"--data: {run} has no {NAME}, so there is nothing to compare its data with\n"
            "a run writes this file when it starts"
        ) from None
    except (OSError, ValueError) as error:
        raise RunnerError(f"--data: {run / NAME}: cannot be read ({error})") from None
    task = localize(resolve(Request(experiment=str(RunDirectory(run).config))).config).task
    problems = [f"{field}: {message}" for field, message in task.preflight()]
    if problems:
        return DataVerification(0, DataDifference(tuple(problems)), read=False)
    now, damages, count = {}, list[str](), 0
    for section, rows in fingerprint_of(task).items():
        phase(f"reading the files of {section}")
        now[section] = [_recompute_digest(row) for row in rows]
        damages += [f"{section}: {line}" for row in rows for line in _find_damage(row)]
        count += sum(row.files for row in rows)
    found = compare(before, now)
    read = all(row.digest for rows in now.values() for row in rows)
    difference = DataDifference((*found.changes, *damages), found.notes)
    return DataVerification(count, difference, read)


def _recompute_digest(row: DataFile) -> DataFile:
    """Computes the digest of a file from its contents, ignoring any cache."""
    kind = row.digest.partition(":")[0]
    if kind == "sha256":
        return dataclasses.replace(row, digest=compute_digest(Path(row.path)))
    if kind == "text":
        return dataclasses.replace(row, digest=compute_text_digest(Path(row.path)))
    if kind == "records":
        return dataclasses.replace(row, digest=f"records:{scan(Path(row.path)).digest}")
    return row


def _find_damage(row: DataFile) -> Iterator[str]:
    """Yields the damage in a record file: the digest covers only the checksums of the records."""
    if not row.digest.startswith("records:"):
        return
    from orbit_runner.data.tfrecord.bad_record import find_damaged_record

    try:
        damage = find_damaged_record(Path(row.path))
    except DataError as error:
        damage = str(error)
    if damage:
        yield damage
