"""The records and events in `metrics.jsonl`: read by `MetricLog`, prepared for a resumed run.

The run may still be writing the file, and may have been killed while it wrote a line, so lines that
are not complete records are ignored. Does not import TensorFlow.
"""

from __future__ import annotations

import array
import contextlib
import dataclasses
import itertools
import math
import os
import re
import shutil
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.utils.files import (
    cut_records,
    parse_record,
    read_lines,
    unused_path,
)
from orbit_runner.utils.metrics import RECORD_KEYS

SPLITS = ("train", "validation")
# How many steps a record averages over, if the run was resumed after its first step.
AVERAGED_STEPS = "averaged_steps"
_TAIL_BYTES = 16 * 1024
# The most bytes at the end of a file that are searched for the last record of each split.
_LONGEST_TAIL = 1024 * 1024
_GROUP = 1000  # records that are read together if all are kept

SPEED = "steps_per_second"
# The setting that says whether higher or lower values of the best checkpoint's metric are better.
METRIC_COMP = "trainer.best_checkpoint_metric_comp"
# Values of training records that describe the machine, not the model.
SYSTEM = "system/"
# Titles of values whose names do not tell their unit.
_TITLES = {
    SPEED: "speed, steps/s",
    "tflops_per_second": "computation, TFLOP/s",
    "mfu": "computation, share of the peak",
    f"{SYSTEM}memory_gib": "memory of the process, GiB",
    f"{SYSTEM}cpu_percent": "processor use of the process, % of a core",
    f"{SYSTEM}machine_memory_percent": "memory of the machine, % in use",
    f"{SYSTEM}gpu_memory_gib": "memory of the fullest GPU of the process, GiB",
    f"{SYSTEM}gpu_peak_memory_gib": "largest memory of a GPU of the process so far, GiB",
}

# Words in the names of metrics whose lower or higher values are better.
# fmt: off
_LOWER = frozenset((
    "loss", "error", "mse", "mae", "rmse", "mape", "msle", "perplexity", "entropy", "crossentropy",
    "divergence", "logcosh", "hinge", "wer", "cer", "eer", "fid", "brier",
))
_HIGHER = frozenset((
    "accuracy", "acc", "auc", "precision", "recall", "f1", "fbeta", "bleu", "rouge", "map", "iou",
    "miou", "ndcg", "hr", "mrr", "psnr", "ssim", "sensitivity", "specificity", "dice",
))
# fmt: on

Record = Mapping[str, Any]
# (split, metric) to the values by step, in ascending order of steps.
Curves = dict[tuple[str, str], dict[int, float]]
# Events: training diverged, the run returned to a checkpoint after that, or was resumed.
DIVERGED = "diverged"
RECOVERED = "recovered"
RESUMED = "resumed"


class MetricLog:
    """`metrics.jsonl` of a run: the only code that looks for something in its lines.

    Args:
        path: The path of the file, which need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def records(self) -> Iterator[Record]:
        """Yields the records in order; none if the file cannot be read."""
        return (record for record in read_lines(self.path) if record.get("split") in SPLITS)

    def last_records(self) -> dict[str, Record]:
        """Returns the last record of each split. Reads only the end of the file."""
        try:
            with self.path.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                size = _TAIL_BYTES
                while True:
                    file.seek(max(0, end - size))
                    records = _find_last_records(file.read())
                    if size >= min(end, _LONGEST_TAIL) or len(records) == len(SPLITS):
                        return records
                    size *= 8
        except OSError:
            return {}

    def losses(self) -> dict[int, float | None]:
        """Returns the training losses by step; None if not a number. JSON has no NaN."""
        return {
            record["step"]: loss
            for record in self.records()
            if record["split"] == "train"
            and AVERAGED_STEPS not in record  # means over other steps
            and type(loss := record.get("training_loss", "")) in (int, float, type(None))
        }

    def curves(self, most_points: int | None = None) -> tuple[Curves, float | None]:
        """Returns the values of every metric by step, and the median of the steps in a second.

        If a step was repeated, the last value counts. The first speed does not, because it includes
        tracing. A curve with more than about `most_points` has only the lowest and the highest
        value of each group of records, and those that are not numbers.
        """
        size = 1 if most_points is None else math.ceil(2 * _count_lines(self.path) / most_points)
        curves: Curves = {}
        speeds = array.array("d")
        records = self.records()
        # Groups of two would save nothing.
        while group := [*itertools.islice(records, size if size > 2 else _GROUP)]:
            points: dict[tuple[str, str], list[tuple[float, int]]] = {}
            for record in group:
                for name, value in metric_values(record).items():
                    points.setdefault((record["split"], name), []).append((value, record["step"]))
            speeds.extend(value for value, _ in points.get(("train", SPEED), ()))
            for key, values in points.items():
                curve = _thin_out(values) if size > 2 else values
                curves.setdefault(key, {}).update((step, value) for value, step in curve)
        finite = [speed for speed in speeds[1:] or speeds if math.isfinite(speed)]
        ordered = {key: dict(sorted(values.items())) for key, values in curves.items()}
        return ordered, statistics.median(finite) if finite else None

    def recoveries(self) -> list[tuple[int, int]]:
        """Returns the parts with the same number of recoveries: (first step, recoveries).

        Steps are numbered from 1, and parts are in ascending order; the first begins at step 1.
        Each recovery changes the seed of the data, and so the order of the examples after it.
        """
        parts = [(1, 0)]
        for event in read_lines(self.path, b'"recoveries"'):
            step, recoveries = event["step"], event.get("recoveries")
            if event.get("event") not in (RECOVERED, RESUMED) or not isinstance(recoveries, int):
                continue
            parts = [part for part in parts if part[0] <= step]
            if not parts or parts[-1][1] != recoveries:
                parts.append((step + 1, recoveries))
        return parts

    def divergence(self) -> Divergence | None:
        """Returns the last divergence; None if there is none."""
        divergence = None
        recoveries = 0
        for event in read_lines(self.path, b'"event"'):
            with contextlib.suppress(ValueError, KeyError, TypeError, OverflowError):
                if event["event"] == DIVERGED:
                    first = event.get("first_above")
                    divergence = Divergence(
                        int(event["step"]), None if first is None else int(first), recoveries
                    )
                recoveries = int(event.get("recoveries", recoveries))
        return divergence


def _thin_out(points: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Returns the lowest and the highest of some (value, step), and those that are NaN."""
    numbers = [point for point in points if not math.isnan(point[0])]
    ends = [min(numbers), max(numbers)] if numbers else []
    return [*(point for point in points if math.isnan(point[0])), *ends]


def _count_lines(path: Path) -> int:
    try:
        with path.open("rb") as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(2**20), b""))
    except OSError:
        return 0


def metric_values(record: Record) -> dict[str, float]:
    """Returns the values of a record that are numbers. JSON has null for NaN and infinities."""
    return {
        name: _number(value)
        for name, value in record.items()
        if name not in RECORD_KEYS and not isinstance(value, (bool, str, list, dict))
    }


def _number(value: float | None) -> float:
    try:
        return math.nan if value is None else float(value)
    except OverflowError:
        return math.nan  # An integer of hundreds of digits.


def metric_title(name: str) -> str:
    """Returns the title of the values of a record, with their unit if they have one."""
    words = name.removeprefix(SYSTEM).replace("best.", "best ")
    return _TITLES.get(name) or words.replace("/", " ").replace("_", " ")


def better_values(metric: str, configured: Collection[object] = ()) -> str:
    """Returns whether `higher` or `lower` values of a metric are better; "" if it is not known.

    Args:
        metric: The name of the metric.
        configured: `trainer.best_checkpoint_metric_comp` of runs that keep the best checkpoint by
            this metric. Where they agree, it decides instead of the name.
    """
    rules = {str(rule or "") for rule in configured}
    if len(rules) == 1 and "" not in rules:
        return rules.pop()
    words = set(re.split(r"[^a-z0-9]+", metric.lower()))
    is_lower = not words.isdisjoint(_LOWER)
    is_higher = not words.isdisjoint(_HIGHER)
    if is_lower == is_higher:
        return ""
    return "lower" if is_lower else "higher"


def is_result(name: str) -> bool:
    """Returns whether a value of a record belongs in tables of results."""
    return not name.startswith(SYSTEM)


def _find_last_records(lines: bytes) -> dict[str, Record]:
    records: dict[str, Record] = {}
    for line in reversed(lines.split(b"\n")):
        # Other lines are not parsed, of which there are many between two evaluations.
        missing = [split for split in SPLITS if split not in records and split.encode() in line]
        if missing and (record := parse_record(line)) and record.get("split") in missing:
            records[record["split"]] = record
        if len(records) == len(SPLITS):
            break
    return records


def prepare_records(
    directory: RunDirectory, step: int, note: Callable[[str], None], *, keep_metrics: bool
) -> None:
    """Removes the records after `step`, and lines that are no records.

    The process must hold the lock of the run. `step` is the global step that the run resumes from.
    If `keep_metrics`, the metrics are copied first, and `note` is called with a message: they may
    be all that is left of a run whose checkpoints were removed.
    """
    records = directory.metrics
    if keep_metrics and records.is_file():
        backup = unused_path(records.with_name(f"{records.name}.before-step-{step}"))
        shutil.copyfile(records, backup)
        note(f"the records of later steps are kept in {backup}")
    for path in (records, directory.fingerprints):
        cut_records(path, after=step)


def recoveries_of(parts: list[tuple[int, int]], step: int) -> int:
    """Returns the number of recoveries with which a step was trained."""
    return next(count for first, count in reversed(parts) if first <= step)


@dataclasses.dataclass(frozen=True)
class Divergence:
    """How training diverged."""

    step: int  # at which it was detected
    # The first step of the mean loss that was above its bound; None if something is not finite.
    first_above: int | None
    recoveries: int  # how often the run had returned to a checkpoint before
