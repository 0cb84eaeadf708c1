"""What a run reports about itself: its records, its trackers, and what qualifies its results.

Records are written to `metrics.jsonl` and event files, and passed to trackers.
"""

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
import psutil
import tensorflow as tf

from orbit_runner.config.serialize import inline_yaml
from orbit_runner.distribute.process_group import Workers
from orbit_runner.errors import first_line, format_list
from orbit_runner.run_directory.evaluations import evaluated_data
from orbit_runner.run_directory.metric_records import AVERAGED_STEPS, SYSTEM
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.tf_internals import DATA_CLASS_SCALAR, summary_resource
from orbit_runner.trackers.tracking import Tracking, make_tracking, writes_event_files
from orbit_runner.train.request import RunRequest
from orbit_runner.train.schedule import Plan
from orbit_runner.train.trainer import Trainer
from orbit_runner.utils.files import create_directory, to_jsonable
from orbit_runner.utils.log import note
from orbit_runner.utils.metrics import flat_scalars, is_scalar

if TYPE_CHECKING:
    from orbit_runner.train.callbacks.base import Logs

    SummaryWriter: TypeAlias = "_Writer | tf.summary.SummaryWriter"

_MAX_IMAGES = 20


class Records:
    """Writes the records of a run: to `metrics.jsonl`, event files and trackers.

    Attributes:
        train: The writer of records of training.
        evaluation: The writer of evaluations; the mode `eval` writes none to the curves.
        tracking: The trackers of the config, except for TensorBoard. There are none in a process
            that writes no records.
        are_written: Whether this process writes its results to the run directory.
        are_of_training: Whether this process writes records of training.
        recorded_step: The step whose evaluation has been recorded already, or None. A finished run
            that is started again evaluates the weights of its last step again.
        data: How the data of a mode that only evaluates differ from the run's own validation data;
            empty if they are the same.
        warnings: Why the results may not be what they seem, as far as it is known at the start.
    """

    def __init__(
        self,
        request: RunRequest,
        workers: Workers,
        global_step: tf.Variable,
        plan: Plan,
        trainer: Trainer | None,
        warnings: Sequence[str],
    ) -> None:
        config = request.config
        directory = RunDirectory(request.model_dir)
        self._global_step = global_step
        self._plan = plan
        self._trainer = trainer
        self.are_written = request.save_summary and workers.is_chief
        self.are_of_training = self.are_written and request.trains
        # The mode `eval` writes its result to a file of its own.
        writes_curves = self.are_written and (request.trains or request.follows)
        self._lines = directory.metrics if writes_curves else None
        if writes_curves:
            create_directory(directory.path)
        self.recorded_step: int | None = None
        self.data = _other_data(request, workers)
        self.warnings = tuple(warnings)
        self.tracking = make_tracking(config.trackers) if self.are_written else Tracking()
        measures = self.are_of_training and config.trainer.system_metrics
        writes_events = writes_curves and writes_event_files(config.trackers)
        self.train = Summaries(
            directory.path / "train" if writes_events else None,
            self._lines,
            "train",
            global_step,
            tracking=self.tracking,
            is_record=plan.is_record,
            extra_values=SystemMetrics() if measures else dict,
            about=self._describe_record,
        )
        self.evaluation = Summaries(
            directory.path / "validation" if writes_events else None,
            self._lines,
            "validation",
            global_step,
            tracking=self.tracking,
            is_record=lambda step: step != self.recorded_step,
        )

    def write_event(self, values: Mapping[str, object]) -> None:
        """Writes an event of training to `metrics.jsonl`, if records of training are written."""
        if self._lines is not None and self.are_of_training:
            step = int(self._global_step.numpy())
            line = {"step": step, "split": "event", "time": round(time.time(), 3)}
            append_records(self._lines, {**line, **values})

    def _describe_record(self, step: int) -> dict[str, int]:
        """Returns how many steps a record averages over if a resume made it fewer than usual."""
        missing = 0 if self._trainer is None else self._trainer.missing_steps(step)
        return {AVERAGED_STEPS: step - self._plan.record_start(step) - missing} if missing else {}


def _other_data(request: RunRequest, workers: Workers) -> Mapping[str, object]:
    """Returns how the data of a mode that only evaluates differ from those of the run."""
    if request.trains or not request.evaluates:
        return {}
    data = evaluated_data(request.model_dir, request.config)
    if data and workers.is_chief:
        lines = format_list([f"{path}: {inline_yaml(value)}" for path, value in data.items()])
        note(f"warning: the validation data are not those of the run:\n{lines}")
    return data


def append_records(path: Path, *records: Mapping[str, object]) -> None:
    """Appends records to a file, one per line; readers never see half a line.

    NaN and infinities become null, because JSON does not have them.
    """
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(to_jsonable(record)) + "\n" for record in records))


class Summaries(orbit.utils.SummaryManagerInterface):
    """Writes what Orbit passes to it, at the steps at which a record ends.

    If an event file cannot be written, training continues without event files.
    """

    def __init__(
        self,
        directory: Path | None,  # of the event files; None: there are none
        lines: Path | None,  # the file of the records, one per line; None: there is none
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
        self._directory = directory
        self._created: set[str] = set()
        self._manager = orbit.utils.SummaryManager(
            str(directory) if directory else None, tf.summary.scalar, global_step=global_step
        )
        self.writes_events = directory is not None
        self._about = about
        self._lines = lines
        self._split = split
        self._tracking = tracking or Tracking()
        self._extra_values = extra_values
        self._global_step = global_step
        self._is_record = is_record

    def summary_writer(self, relative_path: str = "") -> SummaryWriter:
        """Returns the summary writer of a subdirectory, with the method `as_default`.

        That of the directory itself is active inside steps.
        """
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
            if self.writes_events:
                note(
                    f"warning: event files in {self._directory} cannot be written: "
                    f"{first_line(error)}\n  training continues without them"
                )
            self.writes_events = False
            self._manager = orbit.utils.SummaryManager(None, tf.summary.scalar)

    def write_summaries(self, summary_dict: Logs) -> None:
        """Writes one record if a record ends at the global step.

        Nested dicts go to event files in subdirectories.
        """
        step = int(self._global_step.numpy())
        if self._is_record(step):
            self.write([(step, summary_dict)])

    def write(self, records: Sequence[tuple[int, Logs]]) -> None:
        """Writes records, each with its step."""
        if records and (self.writes_events or self._lines is not None):
            extra_values = self._extra_values()
            records = [(step, {**logs, **extra_values}) for step, logs in records]
        if self.writes_events:
            self._write_events(records, "")
        if self._tracking:
            self._tracking.log(self._split, [(step, flat_scalars(logs)) for step, logs in records])
        if self._lines is not None and records:
            now = {"split": self._split, "time": round(time.time(), 3)}
            append_records(
                self._lines,
                *(
                    {"step": step, **now, **self._about(step), **flat_scalars(logs)}
                    for step, logs in records
                ),
            )

    def _write_events(self, records: Sequence[tuple[int, Logs]], subfolder: str) -> None:
        writer = self.summary_writer(subfolder)
        # The writer flushes at the end of the block, so there is one block for all records.
        with self.tolerant_scope(), writer.as_default() as active:
            _write_scalars(records, active)
            _write_images(records)
        nested: dict[str, list[tuple[int, Logs]]] = {}
        for step, logs in records:
            for name, value in logs.items():
                if isinstance(value, Mapping):
                    nested.setdefault(name, []).append((step, value))
        for name, inner in nested.items():
            self._write_events(inner, os.path.join(subfolder, name))

    def flush(self) -> None:
        """Flushes the event files if a record ends at the global step."""
        if self._is_record(int(self._global_step.numpy())):
            with self.tolerant_scope():
                self._manager.flush()


class _Writer:
    """A summary writer whose own errors do not end the run; errors of code that uses it do."""

    def __init__(self, summaries: Summaries, writer: tf.summary.SummaryWriter) -> None:
        self._summaries = summaries
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
        with self._summaries.tolerant_scope():
            scope.__exit__(None, None, None)


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


# Over a shorter time, the share of the processor is a matter of chance.
_SHORTEST_SECONDS = 0.1
_GIB = 2.0**30


class SystemMetrics:
    """Measures the process and the machine. Records within a tenth of a second share the values."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        count = len(tf.config.list_logical_devices("GPU"))
        self._gpus = [f"GPU:{n}" for n in range(count) if _has_memory_info(f"GPU:{n}")]
        self._values: dict[str, float] = {}
        self._process.cpu_percent()  # The first call only starts the measurement.
        self._measured_at = time.monotonic()

    def __call__(self) -> dict[str, float]:
        """Returns the values by name. The share of the processor is that since the last values."""
        now = time.monotonic()
        if not self._values or now - self._measured_at >= _SHORTEST_SECONDS:
            self._values = self._measure()
            self._measured_at = now
        return self._values

    def _measure(self) -> dict[str, float]:
        values = {
            f"{SYSTEM}memory_gib": self._process.memory_info().rss / _GIB,
            f"{SYSTEM}cpu_percent": self._process.cpu_percent(),
            f"{SYSTEM}machine_memory_percent": psutil.virtual_memory().percent,
        }
        if self._gpus:
            # The bytes of tensors, not those that TensorFlow only reserves.
            used = [tf.config.experimental.get_memory_info(name) for name in self._gpus]
            values[f"{SYSTEM}gpu_memory_gib"] = max(usage["current"] for usage in used) / _GIB
            values[f"{SYSTEM}gpu_peak_memory_gib"] = max(usage["peak"] for usage in used) / _GIB
        return values


def _has_memory_info(name: str) -> bool:
    try:
        tf.config.experimental.get_memory_info(name)
    except (ValueError, tf.errors.OpError):  # Not every allocator counts.
        return False
    return True
