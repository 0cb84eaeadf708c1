"""The folder of a run's checkpoints on the disk: which are whole, which are kept.

A checkpoint is written aside and then renamed, its index last: TensorFlow and this runner know one
by its index. Beside `ckpt-100.index` and `ckpt-100.data-…` stands `ckpt-100.json`, the record that
its bytes are checked against before it is used.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from pathlib import Path

from orbit_runner.checkpoint.metadata import CheckpointRecord, mark_files, read_record
from orbit_runner.utils.files import write_whole

_ASIDE = ".writing-"


class CheckpointFolder:
    """A folder of checkpoints, one a step."""

    def __init__(
        self, path: Path, *, name: str = "ckpt", keep: int | None = 5, run: Path | None = None
    ) -> None:
        """Opens the folder, which need not exist yet.

        Args:
            path: The folder.
            name: What checkpoints are called: `<name>-<step>`.
            keep: How many stay; None: all.
            run: The folder above, where a file is to say which one is the newest: there Model
                Garden's runner looks for it.
        """
        self.path, self._name, self._keep, self._run = path, name, keep, run
        self._file = re.compile(rf"{re.escape(name)}-(\d+)\.(index|json|data-\d+-of-\d+)")

    def steps(self) -> list[int]:
        """Returns the steps of which there is anything, whole or not, in ascending order."""
        names = (path.name for path in self.path.glob(f"{self._name}-*"))
        return sorted({int(match[1]) for match in map(self._file.fullmatch, names) if match})

    def committed(self) -> list[int]:
        """Returns the steps of which there is an index: what a process that only reads may use."""
        return [step for step in self.steps() if self.prefix(step).with_suffix(".index").exists()]

    def prefix(self, step: int) -> Path:
        """Returns the path of a checkpoint as TensorFlow takes it, without suffix."""
        return self.path / f"{self._name}-{step}"

    def files(self, step: int) -> list[Path]:
        """Returns the files there are of a checkpoint."""
        found = (self._file.fullmatch(path.name) for path in self.path.glob(f"{self._name}-*"))
        return sorted(self.path / match[0] for match in found if match and int(match[1]) == step)

    def record(self, step: int) -> CheckpointRecord | None:
        """Returns the record of a checkpoint; None where there is none, as of Model Garden's."""
        path = self._record_path(step)
        return read_record(path) if path.exists() else None

    def _record_path(self, step: int) -> Path:
        return self.path / f"{self._name}-{step}.json"

    def damage(self, step: int) -> str:
        """Compares a checkpoint with its record.

        Args:
            step: Its step.

        Returns:
            What is wrong with it; "" for a whole one.
        """
        try:
            record = self.record(step)
        except (OSError, ValueError) as error:
            return f"{self._name}-{step}.json cannot be read: {error}"
        try:
            return self._find_damaged_file(step, record)
        except OSError as error:
            return f"{Path(error.filename or '').name} cannot be read: {error.strerror}"

    def _find_damaged_file(self, step: int, record: CheckpointRecord | None) -> str:
        if record is not None:
            damages = (mark.damage(self.path / name) for name, mark in record.files.items())
            return next(filter(None, damages), "")
        suffixes = {path.suffix.partition("-")[0] for path in self.files(step)}
        missing = sorted({".index", ".data"} - suffixes)
        return f"{self._name}-{step}{missing[0]} is missing" if missing else ""

    def is_unfinished(self, step: int) -> bool:
        """Returns whether a checkpoint was being put in its place, or removed, and never was.

        It has no index then, and TensorFlow's list of checkpoints does not name it.

        Args:
            step: Its step.
        """
        if self.prefix(step).with_suffix(".index").exists():
            return False
        return step not in self._list_steps()

    def _list_steps(self) -> list[int]:
        try:
            text = (self.path / "checkpoint").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        return [int(step) for step in re.findall(rf'"{re.escape(self._name)}-(\d+)"', text)]

    def writing(self, step: int) -> Path:
        """Makes the folder that a checkpoint is written aside in.

        Args:
            step: Its step.

        Returns:
            The path for TensorFlow to write to, without suffix.
        """
        aside = self.path / f"{_ASIDE}{step}"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        return aside / f"{self._name}-{step}"

    def discard(self, written: Path) -> None:
        """Removes a checkpoint that was written aside.

        Args:
            written: What `writing` returned.
        """
        shutil.rmtree(written.parent, ignore_errors=True)

    def discard_all(self) -> None:
        """Removes all that is written aside."""
        for aside in self.path.glob(f"{_ASIDE}*"):
            shutil.rmtree(aside, ignore_errors=True)

    def commit(self, written: Path, record: CheckpointRecord) -> None:
        """Puts a checkpoint that was written aside in its place, then lets old ones go.

        Args:
            written: What `writing` returned.
            record: Its record, without the files.
        """
        files = [path for path in written.parent.iterdir() if self._file.fullmatch(path.name)]
        marks = mark_files(files)
        for path in files:
            _to_disk(path)
        # The index comes last: until then there is no checkpoint of that name.
        for path in sorted(files, key=lambda path: path.suffix == ".index"):
            if path.suffix == ".index":
                dataclasses.replace(record, files=marks).write(self._record_path(record.step))
            path.replace(self.path / path.name)
        _to_disk(self.path)
        self.discard(written)
        self._prune(record.step)

    def _prune(self, newest: int) -> None:
        # Steps after the newest are of a future that was given up, by going back.
        kept = [step for step in self.steps() if step <= newest]
        kept = kept if self._keep is None else kept[-self._keep :]
        self._write_state(kept)
        for step in self.steps():
            if step not in kept:
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
        write_whole(self.path / "checkpoint", "\n".join(lines) + "\n")
        if self._run is not None:
            self._point_from(self._run, steps)

    def _point_from(self, run: Path, steps: list[int]) -> None:
        theirs = CheckpointFolder(run, name=self._name).committed()
        newest = max([*steps, *theirs], default=None)
        if newest is None:
            (run / "checkpoint").unlink(missing_ok=True)
            return
        name = f"{self._name}-{newest}"
        place = f"{self.path.name}/{name}" if newest in steps else name
        write_whole(run / "checkpoint", f'model_checkpoint_path: "{place}"\n')

    def set_aside(self, step: int) -> Path:
        """Moves a damaged checkpoint out of the way, to be looked at.

        Args:
            step: Its step.

        Returns:
            The folder that holds it now.
        """
        parent = self.path / "damaged"
        taken = len(list(parent.glob(f"{self._name}-{step}*"))) if parent.exists() else 0
        folder = parent / (f"{self._name}-{step}" + (f".{taken}" if taken else ""))
        folder.mkdir(parents=True)
        for path in self.files(step):
            path.replace(folder / path.name)
        self._write_state(self.steps())
        return folder

    def clear_leftovers(self) -> list[int]:
        """Removes what a killed process was writing; returns the steps of parts in their place."""
        self.discard_all()
        unfinished = [step for step in self.steps() if self.is_unfinished(step)]
        for step in unfinished:
            self._remove(step)
        return unfinished


def _to_disk(path: Path) -> None:
    # A rename that survives a power failure must not stand for content that does not.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
