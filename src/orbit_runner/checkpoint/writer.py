"""Writes checkpoints to a temporary directory, fingerprints them and moves them into place."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import tensorflow as tf

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.disk_errors import SaveError, describe_failed_write
from orbit_runner.checkpoint.fingerprint import CheckpointContent, describe_non_finite
from orbit_runner.checkpoint.record import CheckpointRecord
from orbit_runner.checkpoint.restore import io_device
from orbit_runner.distribute.process_group import Workers
from orbit_runner.errors import Diverged
from orbit_runner.state.replica_state import has_combined_variables
from orbit_runner.tf_internals import take_async_save_error


class CheckpointWriter:
    """Saves checkpoints to a directory, asynchronously if requested.

    An asynchronous save copies the values first, and training continues while they are written. If
    it fails, the next method call raises the error. `trail` is a file that the fingerprints of each
    checkpoint are appended to. `workers` train together, and only their chief writes; None if there
    is one worker. `listeners` are called after each commit.
    """

    def __init__(
        self,
        checkpoint: tf.train.Checkpoint,
        directory: CheckpointFolder,
        *,
        asynchronous: bool = False,
        trail: Path | None = None,
        workers: Workers | None = None,
        listeners: Sequence[Callable[[], None]] = (),
    ) -> None:
        self._checkpoint = checkpoint
        self._folder = directory
        # TensorFlow creates its counter on first use. Otherwise, a restore would report it missing.
        assert checkpoint.save_counter is not None
        take_async_save_error(checkpoint)  # Fails now if TensorFlow stores it elsewhere.
        # Values that combine those of all workers must be read by all at once, not by a thread.
        self._joint = has_combined_variables(checkpoint)
        self._asynchronous = asynchronous and not self._joint
        self._trail = trail
        self._workers = workers
        self._listeners = listeners
        self._device = io_device(checkpoint)
        self._failure: Exception | None = None

    def write(self, record: CheckpointRecord) -> None:
        """Saves one checkpoint. All workers must call it at the same step.

        The fingerprints of the record are filled in. Raises `SaveError` if this checkpoint or the
        previous one could not be written, and `Diverged` if the weights of either are not finite.
        """
        problem: SaveError | Diverged | None = None
        try:
            self._write(record)
        except (SaveError, Diverged) as error:
            problem = error
        # Only the chief knows the result, but all workers must end or roll back together.
        failure_code = 0 if problem is None else 1 + isinstance(problem, Diverged)
        if self._workers is not None:
            failure_code = self._workers.broadcast_from_chief(failure_code)
            if failure_code:
                self._workers.acknowledge()  # The run may end with this error.
        if problem is not None:
            raise problem
        if failure_code:
            reason = f"the chief could not save a checkpoint of step {record.step}"
            raise Diverged(reason, step=record.step) if failure_code > 1 else SaveError(reason)

    def _write(self, record: CheckpointRecord) -> None:
        if self._workers is not None and not self._workers.is_chief:
            self._join_reads()
            return
        self.sync()

        def finish(path: str) -> None:
            try:
                self._commit(Path(path), record)
            except Exception as error:
                self._failure = error  # TensorFlow would log it, and raise it at the next save.

        options = tf.train.CheckpointOptions(
            enable_async=self._asynchronous,
            experimental_io_device=self._device,
            experimental_write_callbacks=[finish],
        )
        with self._save_error_scope(), _quiet_scope():
            path = str(self._folder.begin_write(record.step))
            # Of a path that is not a tensor, TensorFlow creates the directory, maybe later and in
            # a thread, and so a run directory that was removed in the meantime.
            with tf.device("/cpu:0"):
                tensor = tf.constant(path)
            self._checkpoint.write(tensor, options)
        self.raise_failure()

    def _commit(self, checkpoint: Path, record: CheckpointRecord) -> None:
        content = CheckpointContent(checkpoint).summary()
        tensors = [tensor for tensor in content.non_finite if tensor.name not in record.non_finite]
        if tensors:
            self._folder.discard(checkpoint)
            raise Diverged(
                f"the weights of step {record.step} are not finite, and no checkpoint was saved "
                f"({describe_non_finite(tensors)})",
                step=record.step,
            )
        full_record = dataclasses.replace(record, weights=content.weights, state=content.state)
        self._folder.commit(checkpoint, full_record)
        self._append_to_trail(full_record)
        for listener in self._listeners:
            listener()

    def sync(self) -> None:
        """Waits until the last checkpoint is in place.

        Raises `SaveError` if it could not be written, and `Diverged` if its weights are not finite.
        """
        with self._save_error_scope():
            self._checkpoint.sync()
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raises the error of a save that has failed. Does not wait for a save in progress.

        Raises `SaveError` if it could not be written, and `Diverged` if its weights are not finite.
        """
        error, self._failure = self._failure or take_async_save_error(self._checkpoint), None
        if error is not None:
            self._folder.discard_all()  # The next save may need the disk space.
            with self._save_error_scope():
                raise error

    def _join_reads(self) -> None:
        # The chief's reads wait for those of the other workers, which discard the values.
        if self._joint:
            with (
                tempfile.TemporaryDirectory() as directory,
                self._save_error_scope(),
                _quiet_scope(),
            ):
                self._checkpoint.write(f"{directory}/none")

    def _append_to_trail(self, record: CheckpointRecord) -> None:
        if self._trail is not None:
            line = {"step": record.step, "weights": record.weights, "state": record.state}
            with self._trail.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    @contextlib.contextmanager
    def _save_error_scope(self) -> Iterator[None]:
        """Turns errors of the disk and of TensorFlow into a `SaveError`."""
        try:
            yield
        except (OSError, tf.errors.OpError) as error:
            raise SaveError(
                f"cannot save a checkpoint in {self._folder.path}: "
                f"{describe_failed_write(error, self._folder)}"
            ) from error


@contextlib.contextmanager
def _quiet_scope() -> Iterator[None]:
    # TensorFlow warns about objects that only wrap others, such as an optimizer with loss scaling,
    # and about saving more than once, which creates a new function each time.
    logs = [logging.getLogger(name) for name in ("absl", "tensorflow")]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)
