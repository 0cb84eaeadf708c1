"""Curves, divergence and recoveries from it, as recorded in `metrics.jsonl`."""

import json
import math
import statistics

import pytest

from orbit_runner.compare.runs import compare
from orbit_runner.run_directory.metric_records import (
    Divergence,
    MetricLog,
    recoveries_of,
)
from orbit_runner.utils import files
from orbit_runner.utils.files import parse_record, parse_records
from tests.support.run_directories import write_run

_RECORDS = 5000


def _write(path, count):
    """Writes records whose loss goes up and down, and returns the loss by step."""
    loss = {50 * n: math.sin(n) + n / count for n in range(1, count + 1)}
    records = [
        {"split": "train", "step": step, "loss": value, "steps_per_second": step / 7}
        for step, value in loss.items()
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return loss


def test_short_curve_is_whole(tmp_path):
    loss = _write(tmp_path / "metrics.jsonl", 300)
    assert MetricLog(tmp_path / "metrics.jsonl").curves(300)[0][("train", "loss")] == loss


def test_long_curve_has_the_range_of_each_group(tmp_path):
    loss = _write(tmp_path / "metrics.jsonl", _RECORDS)
    curves, speed = MetricLog(tmp_path / "metrics.jsonl").curves(500)
    curve, steps = curves[("train", "loss")], sorted(loss)
    assert len(curve) <= 500
    assert list(curve) == sorted(curve)
    for first in range(0, _RECORDS, 20):
        group = {step: loss[step] for step in steps[first : first + 20]}
        values = [curve[step] for step in group if step in curve]
        assert sorted(values) == [min(group.values()), max(group.values())]
    assert len(curves[("train", "steps_per_second")]) <= 500
    assert speed == statistics.median(step / 7 for step in steps[1:])


def test_values_that_are_not_numbers_stay_in_a_long_curve(tmp_path):
    path = tmp_path / "metrics.jsonl"
    _write(path, _RECORDS)
    with path.open("a") as file:
        file.write(json.dumps({"split": "train", "step": 10**6, "loss": None}) + "\n")
    assert math.isnan(MetricLog(path).curves(500)[0][("train", "loss")][10**6])


def test_a_long_run_is_read_once_and_thinned_for_pages(tmp_path, monkeypatch):
    paths = [write_run(tmp_path / name) for name in "ab"]
    for path in paths:
        _write(path / "metrics.jsonl", _RECORDS)
        with (path / "metrics.jsonl").open("a") as file:
            file.write('{"split": "validation", "step": 250000, "loss": 1.0}\n')
    parsed = []
    as_record = files._as_record
    monkeypatch.setattr(files, "_as_record", lambda value: parsed.append(value) or as_record(value))
    runs = compare(paths, 500).runs
    assert len(parsed) <= 2 * (_RECORDS + 500)  # The summary reads the end of the file.
    assert all(len(points) <= 500 for run in runs for points in run.curves.values())


@pytest.mark.parametrize("odd", [b"", b"\xff", b"1, 2", b'{"step": 3', b'{"step": 1},{"step": 2}'])
def test_lines_that_are_parsed_together_have_the_records_of_single_lines(odd):
    lines = [b'{"step": 1}\n', odd, b'{"step": 4}', b"[]", b'{"step": true}']
    assert [*parse_records(lines)] == [(line, parse_record(line)) for line in lines]


@pytest.mark.parametrize(
    ("events", "parts"),
    [
        ([], [(1, 0)]),
        ([("recovered", 20, 1)], [(1, 0), (21, 1)]),
        ([("recovered", 20, 1), ("recovered", 40, 2)], [(1, 0), (21, 1), (41, 2)]),
        # The checkpoint of step 20 was damaged.
        ([("recovered", 20, 1), ("recovered", 10, 2)], [(1, 0), (11, 2)]),
        ([("recovered", 0, 1)], [(1, 1)]),
        # Stopped before a checkpoint had the number of recoveries.
        ([("recovered", 20, 1), ("resumed", 20, 0)], [(1, 0)]),
        ([("recovered", 20, 1), ("resumed", 30, 0)], [(1, 0), (21, 1), (31, 0)]),
    ],
)
def test_parts_of_a_run(events, parts, tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = [{"step": 5, "split": "train", "training_loss": 1.0}]
    for name, step, count in events:
        lines.append({"step": step, "split": "event", "event": "diverged", "reason": "x"})
        lines.append({"step": step, "split": "event", "event": name, "recoveries": count})
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    path.write_text(f'{text}{{"recoveries": 7, "event": "recov')

    recoveries = MetricLog(path).recoveries()

    assert recoveries == parts
    for first, count in parts:
        assert recoveries_of(recoveries, first) == count
        assert first == 1 or recoveries_of(recoveries, first - 1) != count


def test_run_without_records_has_no_recoveries(tmp_path):
    assert MetricLog(tmp_path / "metrics.jsonl").recoveries() == [(1, 0)]


def test_last_divergence_is_read(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert MetricLog(path).divergence() is None
    lines = [
        {"step": 5, "split": "train", "training_loss": 1.0},
        {"step": 9, "split": "event", "event": "diverged", "reason": "x", "first_above": 6},
        {"step": 5, "split": "event", "event": "recovered", "recoveries": 1},
        {"step": 20, "split": "event", "event": "diverged", "reason": "y"},
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines[:2]))
    assert MetricLog(path).divergence() == Divergence(step=9, first_above=6, recoveries=0)
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    path.write_text(f'{text}{{"event": "diverged", "st')
    assert MetricLog(path).divergence() == Divergence(step=20, first_above=None, recoveries=1)
