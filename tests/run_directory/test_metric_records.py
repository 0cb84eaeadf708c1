"""Curves of long runs: few points, and none of their extremes lost."""

import json
import math
from pathlib import Path

from orbit_runner.run_directory.metric_records import read_curves

_RECORDS = 5000


def _write(path: Path, count: int) -> dict[int, float]:
    """Writes records whose loss goes up and down, and returns the loss by step."""
    loss = {50 * n: math.sin(n) + n / count for n in range(1, count + 1)}
    records = [
        {"split": "train", "step": step, "loss": value, "steps_per_second": step / 7}
        for step, value in loss.items()
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return loss


def test_short_curve_is_whole(tmp_path: Path) -> None:
    loss = _write(tmp_path / "metrics.jsonl", 300)
    assert read_curves(tmp_path / "metrics.jsonl", 300)[("train", "loss")] == loss


def test_long_curve_has_the_range_of_each_group(tmp_path: Path) -> None:
    loss = _write(tmp_path / "metrics.jsonl", _RECORDS)
    curves = read_curves(tmp_path / "metrics.jsonl", 500)
    found, steps = curves[("train", "loss")], sorted(loss)
    assert len(found) <= 500
    assert list(found) == sorted(found)
    for first in range(0, _RECORDS, 20):
        group = {step: loss[step] for step in steps[first : first + 20]}
        kept = [found[step] for step in group if step in found]
        assert sorted(kept) == [min(group.values()), max(group.values())]
    assert len(curves[("train", "steps_per_second")]) == _RECORDS  # The report shows its median.


def test_values_that_are_not_numbers_stay_in_a_long_curve(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    _write(path, _RECORDS)
    with path.open("a") as file:
        file.write(json.dumps({"split": "train", "step": 10**6, "loss": None}) + "\n")
    assert math.isnan(read_curves(path, 500)[("train", "loss")][10**6])
