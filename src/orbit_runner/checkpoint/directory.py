"""The directory of a run's checkpoints.

A checkpoint is written to a temporary directory and then moved into place, its index file last,
because TensorFlow and this runner recognize a checkpoint by its index. Next to `ckpt-100.index` and
`ckpt-100.data-…` is `ckpt-100.json`, the record that the files are checked against before use.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from orbit_runner.checkpoint.record import (
    CheckpointProblem,
    CheckpointRecord,
    mark_files,
    read_record,
)
from orbit_runner.errors import RunnerError
from orbit_runner.utils.files import create_directory, read_file, unused_path, write_atomically

# Returns which of the steps of a directory to keep; the `checkpoint` file names the last one first.
RetentionRule: TypeAlias = Callable[[Sequence[int]], list[int]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retention:
    """Keeps the newest checkpoints, and those at multiples of a step."""

    max_to_keep: int | None = 5  # None: all.
    step_interval: int = 0  # Checkpoints at its multiples are kept in addition; 0: none.

    def __call__(self, steps: Sequence[int]) -> list[int]:
        """Returns the steps to keep, in ascending order like `steps`."""
        if self.max_to_keep is None:
            return list(steps)
        interval = self.step_interval
        by_step = {step for step in steps if interval and step and step % interval == 0}
        others = [step for step in steps if step not in by_step]
        kept = {*by_step, *others[-self.max_to_keep :]}
        return [step for step in steps if step in kept]


CHECKPOINT_FILE = re.compile(r"(?P<name>.+)-(?P<step>\d+)\.(index|json|data-\d+-of-\d+)")
_LISTED_NAME = re.compile(r'^(?:all_)?model_checkpoint_paths?: "(.*)"$', re.MULTILINE)
_TEMPORARY = ".writing-"
_PAUSE_SECONDS = 0.5
# Called when a checkpoint of a run is in place, maybe in another thread.
save_listeners: list[Callable[[], None]] = []


def listed_names(directory: Path) -> list[str]:
    """Returns the names in TensorFlow's file `checkpoint`: that of the latest, then all."""
    with contextlib.suppress(OSError):
        return _LISTED_NAME.findall(read_file(directory / "checkpoint").decode(errors="replace"))
    return []


class CheckpointFolder:
    """A directory of checkpoints, one per step. It need not exist yet.

    `keep` is the number of checkpoints to keep (None: all), or the rule that decides it. If `run`
    is given, its `checkpoint` file names the newest checkpoint, for `tf.train.latest_checkpoint`.
    """

    def __init__(
        self,
        path: Path,
        *,
        name: str = "ckpt",
        keep: int | RetentionRule | None = 5,
        run: Path | None = None,
    ) -> None:
        self.path = path
        self._name = name
        self._run = run
        self._rule: RetentionRule = keep if callable(keep) else Retention(max_to_keep=keep)

    def _files_by_step(self) -> Iterator[tuple[int, Path]]:
        for path in self.path.glob(f"{self._name}-*"):
            match = CHECKPOINT_FILE.fullmatch(path.name)
            if match and match["name"] == self._name:
                yield int(match["step"]), path

    def steps(self) -> list[int]:
        """Returns the steps that have any checkpoint file, complete or not, in ascending order."""
        return sorted({step for step, _ in self._files_by_step()})

    def committed_steps(self) -> list[int]:
        """Returns the steps that have an index file.

        A process that only reads the directory must use no other checkpoints.
        """
        return [step for step in self.steps() if self._file(step, "index").exists()]

    def prefix(self, step: int) -> Path:
        """Returns the path of a checkpoint without suffix, as TensorFlow expects it."""
        return self.path / f"{self._name}-{step}"

    def _file(self, step: int, suffix: str) -> Path:
        return self.path / f"{self._name}-{step}.{suffix}"

    def files(self, step: int) -> list[Path]:
        """Returns the existing files of a checkpoint."""
        return sorted(path for other, path in self._files_by_step() if other == step)

    def record(self, step: int) -> CheckpointRecord:
        """Returns the record of a checkpoint.

        Raises `ValueError` or `OSError` if the record cannot be read.
        """
        return read_record(self._file(step, "json"))

    def records(self) -> Iterator[tuple[int, CheckpointRecord]]:
        """Yields the steps with a record that can be read, and the record, the newest first."""
        for step in reversed(self.steps()):
            with contextlib.suppress(OSError, ValueError):
                yield step, self.record(step)

    def require_record(self, step: int) -> CheckpointRecord:
        """Returns the record of a checkpoint. Raises `RunnerError` if it cannot be read."""
        try:
            return self.record(step)
        except (OSError, ValueError) as error:
            raise RunnerError(
                f"the record of {self.prefix(step)} cannot be read: {error}",
                code="damaged-checkpoint",
            ) from error

    def problem(self, step: int) -> CheckpointProblem | None:
        """Returns why a checkpoint cannot be used, or None if its files are those in its record."""
        damage = self._damage(step)
        if damage:
            time.sleep(_PAUSE_SECONDS)  # The run may be moving it into place or removing it.
            if step not in self.steps():
                return CheckpointProblem("it no longer exists", is_gone=True)
            damage = self._damage(step)
        return CheckpointProblem(damage) if damage else None

    def _damage(self, step: int) -> str:
        """Returns what is wrong with the files of a checkpoint, or "" if they are intact."""
        name = self.prefix(step).name
        try:
            record = self.record(step)
        except FileNotFoundError:
            return f"{name}.json is missing"
        except (OSError, ValueError) as error:
            return f"{name}.json cannot be read: {error}"
        if record.step != step:
            return (
                f"{name}.json is the record of step {record.step}: its files were renamed or copied"
            )
        try:
            damages = (mark.damage(self.path / file) for file, mark in record.files.items())
            return next(filter(None, damages), "")
        except OSError as error:
            return f"{Path(error.filename or '').name} cannot be read: {error.strerror}"

    def is_unfinished(self, step: int) -> bool:
        """Returns whether a checkpoint was only partly moved into place, or only partly removed.

        It then has no index, and TensorFlow's list of checkpoints does not name it.
        """
        return not self._file(step, "index").exists() and step not in self.listed_steps()

    def listed_steps(self) -> list[int]:
        """Returns the steps in TensorFlow's list of checkpoints, the one that it names last."""
        name = re.compile(rf"{re.escape(self._name)}-(\d+)")
        matches = map(name.fullmatch, listed_names(self.path)[1:])
        return [int(match[1]) for match in matches if match]

    def newest_step_of_run(self) -> int | None:
        """Returns the step of the checkpoint that the run directory names as its latest.

        None if the file `checkpoint` there does not exist or names no checkpoint of this directory.
        """
        latest = "".join(listed_names(self.path.parent)[:1])
        match = re.fullmatch(rf"{re.escape(self.path.name)}/{re.escape(self._name)}-(\d+)", latest)
        return int(match[1]) if match else None

    def begin_write(self, step: int) -> Path:
        """Creates a temporary directory; returns the path in it, without suffix, to write to."""
        temporary = self.path / f"{_TEMPORARY}{step}"
        shutil.rmtree(temporary, ignore_errors=True)
        create_directory(self.path)
        temporary.mkdir()
        return temporary / self.prefix(step).name

    def discard(self, checkpoint: Path) -> None:
        """Removes the temporary directory of `checkpoint`, a path that `begin_write` returned."""
        shutil.rmtree(checkpoint.parent, ignore_errors=True)

    def discard_all(self) -> None:
        """Removes all temporary directories of checkpoints, and none with another name."""
        for temporary in self.path.glob(f"{_TEMPORARY}*"):
            if temporary.name.removeprefix(_TEMPORARY).isdigit():
                shutil.rmtree(temporary, ignore_errors=True)

    def commit(self, checkpoint: Path, record: CheckpointRecord) -> None:
        """Moves a checkpoint from its temporary directory into place, then removes old ones.

        `checkpoint` is the path that `begin_write` returned. `files` of the record is filled
        in.
        """
        files = [
            path for path in checkpoint.parent.iterdir() if CHECKPOINT_FILE.fullmatch(path.name)
        ]
        marks = mark_files(files)
        for path in files:
            _flush_to_disk(path)
        # The index is moved last, because a checkpoint with an index counts as complete.
        for path in sorted(files, key=lambda path: path.suffix == ".index"):
            if path.suffix == ".index":
                record_with_files = dataclasses.replace(record, files=marks)
                record_with_files.write(self._file(record.step, "json"))
            path.replace(self.path / path.name)
        _flush_to_disk(self.path)
        self.discard(checkpoint)
        self.prune(record.step)

    def prune(self, newest: int) -> None:
        """Removes checkpoints after the step `newest`, and those that the rule does not keep."""
        # Later steps were abandoned when training rolled back to an earlier checkpoint.
        steps = [step for step in self.steps() if step <= newest]
        self.remove_others(self._rule(steps))

    def remove_others(self, steps: list[int]) -> None:
        """Removes all checkpoints but some. TensorFlow's list names the last one of `steps`."""
        self._write_state(steps)
        for step in self.steps():
            if step not in steps:
                self._remove(step)

    def _remove(self, step: int) -> None:
        for path in sorted(self.files(step), key=lambda path: path.suffix != ".index"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def _write_state(self, steps: list[int]) -> None:
        """Writes the file that `tf.train.latest_checkpoint` reads."""
        names = [f'"{self._name}-{step}"' for step in steps]
        lines = [f"model_checkpoint_path: {name}" for name in names[-1:]]
        lines += [f"all_model_checkpoint_paths: {name}" for name in names]
        write_atomically(self.path / "checkpoint", "\n".join(lines) + "\n")
        if self._run is None:
            return
        newest = self._run / "checkpoint"
        if steps:
            place = f"{self.path.name}/{self._name}-{steps[-1]}"
            write_atomically(newest, f'model_checkpoint_path: "{place}"\n')
        else:
            newest.unlink(missing_ok=True)

    def set_aside(self, step: int) -> Path:
        """Moves a damaged checkpoint to a directory below `damaged`; returns that directory."""
        directory = unused_path(self.path / "damaged" / self.prefix(step).name)
        create_directory(directory)
        for path in self.files(step):
            path.replace(directory / path.name)
        self._write_state(self.steps())
        return directory

    def clear_leftovers(self) -> list[int]:
        """Removes what a killed process left; returns the steps of partly written checkpoints."""
        self.discard_all()
        unfinished = [step for step in self.steps() if self.is_unfinished(step)]
        for step in unfinished:
            self._remove(step)
        return unfinished


def _flush_to_disk(path: Path) -> None:
    # Otherwise, a power failure could keep the rename of a file but lose its content.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Entry(NamedTuple):
    """A result of an evaluation, and the step of the weights."""

    value: float
    step: int


Ranking = Sequence[Entry]  # The best one first.


def insert_entry(
    ranking: Ranking, entry: Entry, is_better: Callable[[float, float], bool], most: int
) -> list[Entry] | None:
    """Returns a ranking with another result, or None if the result is not among the best `most`.

    Of equal results, the earlier one ranks first. A result of a step that is already ranked counts
    only if it is better than before. Results that are NaN or infinite are never ranked.
    """
    before = next((other for other in ranking if other.step == entry.step), None)
    if not math.isfinite(entry.value) or (before and not is_better(entry.value, before.value)):
        return None
    others = [other for other in ranking if other is not before]
    place = next(
        (at for at, other in enumerate(others) if is_better(entry.value, other.value)), len(others)
    )
    if place >= most:
        return None
    return [*others[:place], entry, *others[place:]][:most]


class KeepRanked:
    """Keeps the checkpoints of a ranking, and those that the latest checkpoint of the run ranks.

    A run that is resumed, or that returns to its latest checkpoint, has the ranking of that
    checkpoint again, and needs them.
    """

    def __init__(self) -> None:
        self.ranking: Ranking = ()
        self.needed: frozenset[int] = frozenset()  # Further steps to keep.

    def __call__(self, steps: Sequence[int]) -> list[int]:
        """Returns the steps to keep, the best one last."""
        ranked = [entry.step for entry in reversed(self.ranking) if entry.step in steps]
        return [step for step in steps if step in self.needed and step not in ranked] + ranked


def ranking_on_disk(
    directory: CheckpointFolder, metric: str, is_better: Callable[[float, float], bool]
) -> list[Entry]:
    """Returns the ranking of the checkpoints in a directory, by the results in their records."""
    ranking: list[Entry] = []
    committed = directory.committed_steps()
    for step, record in reversed([*directory.records()]):
        with contextlib.suppress(ValueError, TypeError, KeyError):
            entry = Entry(float(record.result[metric]), step)
            if step in committed:
                ranking = insert_entry(ranking, entry, is_better, len(ranking) + 1) or ranking
    return ranking


def steps_by_rank(directory: CheckpointFolder) -> list[int]:
    """Returns the steps of the best checkpoints, the best one last.

    The order is that of TensorFlow's `checkpoint` file. A checkpoint that the file does not name
    comes first: the process that saved it was killed.
    """
    ranking = directory.listed_steps()
    steps: Iterable[int] = directory.committed_steps()
    return sorted(steps, key=lambda step: ranking.index(step) if step in ranking else -1)
