"""Reads the records in `metrics.jsonl`. Does not import TensorFlow.

The run may still be writing the file, and may have been killed while it wrote a line, so lines that
are not complete records are ignored.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from orbit_runner.utils.files import open_file, parse_json

SPLITS = ("train", "validation")
# How many steps a record averages over, if the run was resumed after its first step.
AVERAGED_STEPS = "averaged_steps"
# Keys of a record that are not values of a metric.
_NOT_METRICS = ("step", "split", "time", "event", AVERAGED_STEPS)
_TAIL_BYTES = 16 * 1024
# The most bytes at the end of a file that are searched for the last record of each split.
_LONGEST_TAIL = 1024 * 1024

SPEED = "steps_per_second"
# Values of training records that describe the training itself and the machine, not the model.
WATCH, SYSTEM = "watch/", "system/"
UPDATE_RATIO = f"{WATCH}update_ratio/"  # followed by the name of a layer

Record = Mapping[str, Any]
# (split, metric) to the values by step, in ascending order of steps.
Curves = dict[tuple[str, str], dict[int, float]]


def read_records(path: Path) -> Iterator[Record]:
    """Yields the records of a file in order; none if it cannot be read."""
    try:
        with open_file(path) as file:
            yield from _parse_records(file)
    except OSError:
        return


def read_last_records(path: Path) -> dict[str, Record]:
    """Returns the last record of each split. Reads only the end of the file."""
    try:
        with open_file(path) as file:
            end, size = file.seek(0, os.SEEK_END), _TAIL_BYTES
            while True:
                file.seek(max(0, end - size))
                found = _find_last_records(file.read())
                if size >= min(end, _LONGEST_TAIL) or len(found) == len(SPLITS):
                    return found
                size *= 8
    except OSError:
        return {}


def read_curves(path: Path, most_points: int | None = None) -> Curves:
    """Returns the values of every metric by step. If a step was repeated, the last value counts.

    A curve with more than about `most_points` has only the lowest and the highest value of each
    group of records, and those that are not numbers. The curve of the speed is always whole.
    """
    size = 1 if most_points is None else math.ceil(2 * _count_lines(path) / most_points)
    curves: Curves = {}
    groups: dict[tuple[str, str], _Group] = {}
    for number, record in enumerate(read_records(path)):
        for name, value in metric_values(record).items():
            key, point = (record["split"], name), (value, record["step"])
            curve = curves.setdefault(key, {})
            # Groups of two would save nothing.
            if size <= 2 or name == SPEED or math.isnan(value):
                curve[record["step"]] = value
                continue
            group = groups.get(key)
            if group is None or group.number != number // size:
                if group is not None:
                    group.write_points(curve)
                group = groups[key] = _Group(number // size, point, point)
            group.lowest, group.highest = min(group.lowest, point), max(group.highest, point)
    for key, group in groups.items():
        group.write_points(curves[key])
    return {key: dict(sorted(values.items())) for key, values in curves.items()}


def read_partial_records(path: Path) -> dict[int, int]:
    """Returns how many steps a training record averages over, by its step.

    Contains only the records that lack steps, because the run was resumed after their first step.
    """
    try:
        with open_file(path) as file:
            marked = [line for line in file if AVERAGED_STEPS.encode() in line]
    except OSError:
        return {}
    steps = {record["step"]: record.get(AVERAGED_STEPS) for record in _parse_records(marked)}
    return {step: count for step, count in sorted(steps.items()) if isinstance(count, int)}


@dataclasses.dataclass
class _Group:
    """The lowest and the highest point, (value, step), of a group of records."""

    number: int
    lowest: tuple[float, int]
    highest: tuple[float, int]

    def write_points(self, curve: dict[int, float]) -> None:
        for value, step in (self.lowest, self.highest):
            curve[step] = value


def _count_lines(path: Path) -> int:
    try:
        with open_file(path) as file:
            return sum(1 for _ in file)
    except OSError:
        return 0


def metric_values(record: Record) -> dict[str, float]:
    """Returns the values of a record that are numbers. JSON has null for NaN and infinities."""
    return {
        name: _number(value)
        for name, value in record.items()
        if name not in _NOT_METRICS and not isinstance(value, (bool, str, list, dict))
    }


def _number(value: float | None) -> float:
    try:
        return math.nan if value is None else float(value)
    except OverflowError:
        return math.nan  # An integer of hundreds of digits.


def is_result(name: str) -> bool:
    """Returns whether a value of a record belongs in tables of results."""
    return not name.startswith((WATCH, SYSTEM))


def _find_last_records(lines: bytes) -> dict[str, Record]:
    found: dict[str, Record] = {}
    for record in _parse_records(reversed(lines.split(b"\n"))):
        found.setdefault(str(record["split"]), record)
        if len(found) == len(SPLITS):
            break
    return found


def _parse_records(lines: Iterable[bytes]) -> Iterator[Record]:
    for line in lines:
        if not line:
            continue
        try:
            record = parse_json(line.decode())
        except ValueError:
            continue
        if isinstance(record, dict) and record.get("split") in SPLITS:
            step = record.get("step")
            if isinstance(step, int) and not isinstance(step, bool):
                yield record
