"""What a run reports about itself: its records, its trackers, and what qualifies its results."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import psutil
import tensorflow as tf

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.run_directory.metric_records import AVERAGED_STEPS, SYSTEM
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.trackers.tracking import Tracking, make_tracking, writes_event_files
from orbit_runner.train.callbacks.summaries import JsonLines, Summaries
from orbit_runner.train.schedule import Plan
from orbit_runner.train.trainer import Trainer


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
        config: ExperimentConfig,
        directory: RunDirectory,
        global_step: tf.Variable,
        plan: Plan,
        trainer: Trainer | None,
        *,
        writes: bool,  # whether this process writes records
        writes_curves: bool,  # False in the mode `eval`, whose result has a file of its own
        data: Mapping[str, object],
        warnings: Sequence[str] = (),
    ) -> None:
        self._config = config
        self._directory = directory
        self._global_step = global_step
        self._plan = plan
        self._trainer = trainer
        self._lines = JsonLines(directory.metrics) if writes and writes_curves else None
        self.are_written = writes
        self.are_of_training = writes and trainer is not None
        self.recorded_step: int | None = None
        self.data = data
        self.warnings = tuple(warnings)
        self.tracking = make_tracking(config.trackers) if writes else Tracking()
        measures = self.are_of_training and config.trainer.system_metrics
        self.train = self._build_summaries(
            "train",
            "train",
            plan.is_record,
            self._describe_record,
            SystemMetrics() if measures else dict,
        )
        self.evaluation = self._build_summaries("validation", "validation", self._is_new_evaluation)

    def write_event(self, values: Mapping[str, object]) -> None:
        """Writes an event of training to `metrics.jsonl`, if records of training are written."""
        if self._lines is not None and self.are_of_training:
            step = int(self._global_step.numpy())
            line = {"step": step, "split": "event", "time": round(time.time(), 3)}
            self._lines.write({**line, **values})

    def _is_new_evaluation(self, step: int) -> bool:
        return step != self.recorded_step

    def _build_summaries(
        self,
        subdir: str,
        split: str,
        is_record: Callable[[int], bool],
        about: Callable[[int], Mapping[str, object]] = lambda step: {},
        extra_values: Callable[[], Mapping[str, float]] = dict,
    ) -> Summaries:
        writes_events = subdir and self._lines and writes_event_files(self._config.trackers)
        return Summaries(
            self._directory.path / subdir if writes_events else None,
            self._lines,
            split,
            self._global_step,
            is_record,
            extra_values,
            self.tracking,
            about,
        )

    def _describe_record(self, step: int) -> dict[str, int]:
        """Returns how many steps a record averages over if a resume made it fewer than usual."""
        missing = 0 if self._trainer is None else self._trainer.missing_steps(step)
        return {AVERAGED_STEPS: step - self._plan.record_start(step) - missing} if missing else {}


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
