"""Writes the records of a run to `metrics.jsonl` and event files, and passes them to trackers."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsFloat, TypeAlias

import numpy as np
import orbit
import tensorflow as tf

from orbit_runner.errors import first_line
from orbit_runner.tf_internals import DATA_CLASS_SCALAR, summary_resource
from orbit_runner.trackers.tracking import Tracking
from orbit_runner.utils.files import create_directory, to_jsonable
from orbit_runner.utils.log import note
from orbit_runner.utils.metrics import flat_scalars, is_scalar

if TYPE_CHECKING:
    from orbit_runner.train.callbacks.base import Logs

    SummaryWriter: TypeAlias = "_Writer | tf.summary.SummaryWriter"


_MAX_IMAGES = 20


class JsonLines:
    """Appends records to a file, one per line; readers never see half a line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        create_directory(path.parent)

    def write(self, *records: Mapping[str, object]) -> None:
        """Appends records; NaN and infinities become null, because JSON does not have them."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(to_jsonable(record)) + "\n" for record in records))


class EventFiles:
    """The event files of one split. If any cannot be written, training continues without them."""

    def __init__(self, directory: Path | None, global_step: tf.Variable) -> None:
        self._directory = directory
        self._created: set[str] = set()
        self._manager = orbit.utils.SummaryManager(
            str(directory) if directory else None, tf.summary.scalar, global_step=global_step
        )
        self.are_written = directory is not None

    def summary_writer(self, relative_path: str = "") -> SummaryWriter:
        """Returns the summary writer of a subdirectory, with the method `as_default`."""
        with self.tolerant_scope():
            if self._directory is not None and relative_path not in self._created:
                # TensorFlow would create a run directory again that was removed.
                create_directory(self._directory / relative_path)
                self._created.add(relative_path)
            return _Writer(self, self._manager.summary_writer(relative_path))
        return tf.summary.create_noop_writer()

    @contextlib.contextmanager
    def tolerant_scope(self) -> Iterator[None]:
        """Turns the first error of writing in a `with` block into a warning; then writes no more.

        A run must not end because of a curve; what it needs to resume is in other files.
        """
        try:
            yield
        except (OSError, tf.errors.OpError) as error:
            if self.are_written:
                note(
                    f"warning: event files in {self._directory} cannot be written: "
                    f"{first_line(error)}\n  training continues without them"
                )
            self.are_written = False
            self._manager = orbit.utils.SummaryManager(None, tf.summary.scalar)

    def flush(self) -> None:
        """Flushes the event files."""
        with self.tolerant_scope():
            self._manager.flush()


class _Writer:
    """A summary writer whose own errors do not end the run; errors of code that uses it do."""

    def __init__(self, files: EventFiles, writer: tf.summary.SummaryWriter) -> None:
        self._files = files
        self._writer = writer

    @contextlib.contextmanager
    def as_default(self, step: int | None = None) -> Iterator[tf.summary.SummaryWriter]:
        """Makes the writer the default in a `with` block, which flushes it at its end."""
        scope = self._writer.as_default(step)
        scope.__enter__()
        try:
            yield self._writer
        except BaseException as error:
            with contextlib.suppress(type(error), OSError, tf.errors.OpError):
                scope.__exit__(type(error), error, error.__traceback__)
            raise
        with self._files.tolerant_scope():
            scope.__exit__(None, None, None)


class Summaries(orbit.utils.SummaryManagerInterface):
    """Writes what Orbit passes to it, at the steps at which a record ends."""

    def __init__(
        self,
        directory: Path | None,  # None: no event files
        lines: JsonLines | None,  # None: no records
        split: str,  # `train` or `validation`
        global_step: tf.Variable,
        *,
        tracking: Tracking | None = None,  # the trackers that receive the records, too
        is_record: Callable[[int], bool] = lambda step: True,  # whether a record ends at a step
        # Returns values to add to each record.
        extra_values: Callable[[], Mapping[str, float]] = dict,
        # Returns what a record says besides its values, such as which data was evaluated.
        about: Callable[[int], Mapping[str, object]] = lambda step: {},
    ) -> None:
        self._files = EventFiles(directory, global_step)
        self._about = about
        self._lines = lines
        self._split = split
        self._tracking = tracking or Tracking()
        self._extra_values = extra_values
        self._global_step = global_step
        self._is_record = is_record

    def summary_writer(self, relative_path: str = "") -> SummaryWriter:
        """Returns the summary writer that is active inside steps."""
        return self._files.summary_writer(relative_path)

    def write_summaries(self, summary_dict: Logs) -> None:
        """Writes one record if a record ends at the global step.

        Nested dicts go to event files in subdirectories.
        """
        step = int(self._global_step.numpy())
        if self._is_record(step):
            self.write([(step, summary_dict)])

    def write(self, records: Sequence[tuple[int, Logs]]) -> None:
        """Writes records, each with its step."""
        if records and (self._files.are_written or self._lines is not None):
            extra_values = self._extra_values()
            records = [(step, {**logs, **extra_values}) for step, logs in records]
        if self._files.are_written:
            self._write(records, "")
        if self._tracking:
            self._tracking.log(self._split, [(step, flat_scalars(logs)) for step, logs in records])
        if self._lines is not None and records:
            now = {"split": self._split, "time": round(time.time(), 3)}
            self._lines.write(
                *(
                    {"step": step, **now, **self._about(step), **flat_scalars(logs)}
                    for step, logs in records
                )
            )

    def _write(self, records: Sequence[tuple[int, Logs]], subfolder: str) -> None:
        writer = self._files.summary_writer(subfolder)
        # The writer flushes at the end of the block, so there is one block for all records.
        with self._files.tolerant_scope(), writer.as_default() as active:
            _write_scalars(records, active)
            _write_images(records)
        nested: dict[str, list[tuple[int, Logs]]] = {}
        for step, logs in records:
            for name, value in logs.items():
                if isinstance(value, Mapping):
                    nested.setdefault(name, []).append((step, value))
        for name, inner in nested.items():
            self._write(inner, os.path.join(subfolder, name))

    def flush(self) -> None:
        """Flushes the event files if a record ends at the global step."""
        if self._is_record(int(self._global_step.numpy())):
            self._files.flush()


def _write_scalars(records: Sequence[tuple[int, Logs]], writer: tf.summary.SummaryWriter) -> None:
    """Writes one event for the scalars of each record."""
    resource = summary_resource(writer)
    if resource is None:
        return
    # A record of a small network ends every 15 ms. `tf.summary.scalar` takes 200 µs for each value
    # and `tf.summary.experimental.write_raw_pb` 130 µs for each event, most of it in Python. This
    # op takes 14 µs, half of what it takes if it has to convert Python values itself.
    for step, logs in records:
        values = {name: value for name, value in logs.items() if is_scalar(value)}
        if values:
            tf.raw_ops.WriteRawProtoSummary(
                writer=resource,
                # TensorFlow keeps the tensor of each Python number forever.
                step=tf.constant(np.int64(step)),
                tensor=tf.constant(_event(values)),
            )


def _write_images(records: Sequence[tuple[int, Logs]]) -> None:
    """Writes batches of images to the default summary writer."""
    for step, logs in records:
        for name, value in logs.items():
            if _is_image_batch(value):
                tf.summary.image(name, value, step, max_outputs=_MAX_IMAGES)


def _event(scalars: Mapping[str, SupportsFloat]) -> bytes:
    """Returns, as one event, what `tf.summary.scalar` would write for each scalar."""
    summary = _empty_event(tuple(scalars))
    for entry, value in zip(summary.value, scalars.values(), strict=True):
        entry.tensor.float_val[0] = float(value)
    return summary.SerializeToString()


@functools.lru_cache
def _empty_event(names: tuple[str, ...]) -> tf.compat.v1.Summary:
    """Returns the event of some scalars that are zero; the records of a run have the same names."""
    summary = tf.compat.v1.Summary()
    for name in names:
        entry = summary.value.add(tag=name)
        entry.metadata.plugin_data.plugin_name = "scalars"
        entry.metadata.data_class = DATA_CLASS_SCALAR
        entry.tensor.dtype = tf.float32.as_datatype_enum
        entry.tensor.tensor_shape.SetInParent()
        entry.tensor.float_val.append(0.0)
    return summary


def _is_image_batch(value: Any) -> bool:
    """Returns whether a value is a batch of images, [batch, height, width, channels]."""
    return np.ndim(value) == 4 and np.shape(value)[-1] in (1, 3, 4)
