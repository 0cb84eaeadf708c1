"""The steps that a run skipped, as recorded in `metrics.jsonl`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbit_runner.run_directory.skipped_steps import read_skipped_steps


@pytest.mark.parametrize("lists", [[], [[7]], [[7], [7, 9]], [[7], [], [7, 8]], [[7, 9], []]])
def test_last_event_counts(lists: list[list[int]], tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [{"step": 5, "split": "train", "training_loss": 1.0}]
    for steps in lists:
        lines.append({"step": 5, "split": "event", "event": "skipped", "skipped": steps})
        lines.append({"step": 5, "split": "event", "event": "resumed", "recoveries": 0})
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    path.write_text(f'{text}{{"skipped": [1, ')
    assert read_skipped_steps(path) == (tuple(lists[-1]) if lists else ())


def test_run_without_records_skipped_nothing(tmp_path: Path) -> None:
    assert read_skipped_steps(tmp_path / "metrics.jsonl") == ()
