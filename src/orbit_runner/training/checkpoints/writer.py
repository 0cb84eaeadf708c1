"""Writes checkpoints aside, takes their fingerprints, and puts them in their place."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from orbit_runner.errors import RunnerError, first_line
from orbit_runner.runtime.coordinator import io_device
from orbit_runner.training.checkpoints.folder import CheckpointFolder
from orbit_runner.training.checkpoints.record import CheckpointRecord
from orbit_runner.training.fingerprint import CheckpointContent
from orbit_runner.training.replica_state import is_joint


class SaveError(RunnerError):
    """A checkpoint that could not be written."""

    exit_code = 1


class CheckpointWriter:
    """Saves into a folder; beside training where that is asked for.

    Asynchronously, the values are copied first, and training goes on while they are written.
    """

    def __init__(
        self,
        checkpoint: tf.train.Checkpoint,
        folder: CheckpointFolder,
        *,
        asynchronous: bool = False,
        trail: Path | None = None,
        writes: bool = True,
    ) -> None:
        """Makes the writer.

        Args:
            checkpoint: What is saved.
            folder: Where it goes.
            asynchronous: Whether `write` returns before the checkpoint is on the disk.
            trail: A file to which the fingerprints of each checkpoint are added; they outlive it.
            writes: Whether this worker is the one that writes.
        """
        self._checkpoint, self._folder = checkpoint, folder
        # TensorFlow makes its counter when it is first asked for; restoring misses it otherwise.
        assert checkpoint.save_counter is not None
        # Values that are made of all workers' are read by all at once, not when a thread can.
        self._joint = is_joint(checkpoint)
        self._asynchronous, self._trail = asynchronous and not self._joint, trail
        self._writes, self._device = writes, io_device(checkpoint)

    def write(self, record: CheckpointRecord) -> None:
        """Saves one checkpoint.

        Args:
            record: What is noted of it; fingerprints are filled in.

        Raises:
            SaveError: This one, or the one before, could not be written.
        """
        if not self._writes:
            self._read_along()
            return

        def finish(path: str) -> None:
            content = CheckpointContent(path)
            whole = dataclasses.replace(
                record, weights=content.weights_fingerprint(), state=content.state_fingerprint()
            )
            self._folder.commit(Path(path), whole)
            self._note(whole)

        options = tf.train.CheckpointOptions(
            enable_async=self._asynchronous,
            experimental_io_device=self._device,
            experimental_write_callbacks=[finish],
        )
        with self._blamed(), _quiet():
            self._checkpoint.write(str(self._folder.writing(record.step)), options)

    def sync(self) -> None:
        """Waits until what was written is in its place.

        Raises:
            SaveError: It could not be written.
        """
        with self._blamed():
            self._checkpoint.sync()

    def _read_along(self) -> None:
        # The chief's reads wait for those of the other workers, which keep nothing of it.
        if self._joint:
            with tempfile.TemporaryDirectory() as folder, self._blamed(), _quiet():
                self._checkpoint.write(f"{folder}/none")

    def _note(self, record: CheckpointRecord) -> None:
        if self._trail is not None:
            line = {"step": record.step, "weights": record.weights, "state": record.state}
            with self._trail.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    @contextlib.contextmanager
    def _blamed(self) -> Iterator[None]:
        try:
            yield
        except (OSError, tf.errors.OpError) as error:
            raise SaveError(
                f"cannot save a checkpoint in {self._folder.path}: {first_line(error)}\n"
                "the checkpoints before it are whole; make room and start the run again"
            ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    # TensorFlow warns of objects that only hold others, such as an optimizer that scales the loss.
    # And of saving more than once, which makes a new function each time.
    logs = [logging.getLogger(name) for name in ("absl", "tensorflow")]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)
