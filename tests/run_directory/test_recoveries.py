"""The number of recoveries from divergence that each step was trained with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbit_runner.run_directory.recoveries import read_recoveries, recoveries_of


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
def test_parts_of_a_run(
    events: list[tuple[str, int, int]], parts: list[tuple[int, int]], tmp_path: Path
) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [{"step": 5, "split": "train", "training_loss": 1.0}]
    for name, step, count in events:
        lines.append({"step": step, "split": "event", "event": "diverged", "reason": "x"})
        lines.append({"step": step, "split": "event", "event": name, "recoveries": count})
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    path.write_text(f'{text}{{"recoveries": 7, "event": "recov')

    found = read_recoveries(path)

    assert found == parts
    for first, count in parts:
        assert recoveries_of(found, first) == count
        assert first == 1 or recoveries_of(found, first - 1) != count


def test_run_without_records_has_no_recoveries(tmp_path: Path) -> None:
    assert read_recoveries(tmp_path / "metrics.jsonl") == [(1, 0)]
