"""What a run reports about itself: its records, its trackers, and what qualifies its results."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import psutil
import tensorflow as tf

from orbit_runner.config.serialize import inline_yaml
from orbit_runner.distribute.process_group import Workers
from orbit_runner.errors import format_list
from orbit_runner.run_directory.evaluations import evaluated_data
from orbit_runner.run_directory.metric_records import AVERAGED_STEPS, SYSTEM
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.trackers.tracking import Tracking, make_tracking, writes_event_files
from orbit_runner.train.callbacks.summaries import JsonLines, Summaries
from orbit_runner.train.request import RunRequest
from orbit_runner.train.schedule import Plan
from orbit_runner.train.trainer import Trainer
from orbit_runner.utils.log import note


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
        self._lines = JsonLines(directory.metrics) if writes_curves else None
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
            self._lines.write({**line, **values})

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
