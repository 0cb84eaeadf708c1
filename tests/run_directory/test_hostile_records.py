"""Records of a run that a stranger wrote: too deep, too large, or with values of other types."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orbit_runner.data.fingerprint import describe_files
from orbit_runner.run_directory.branch import read_branch
from orbit_runner.run_directory.config import read_setting, read_settings
from orbit_runner.run_directory.data_record import DataRecord
from orbit_runner.run_directory.history import read_history
from orbit_runner.run_directory.metric_records import (
    read_curves,
    read_divergence,
    read_recoveries,
)
from orbit_runner.run_directory.run_summary import read_summary
from orbit_runner.utils.files import cut_records, read_lines, repair_records
from orbit_runner.utils.log import PlainMessages, log_scope

DEEP = '{"step": 1, "split": "train", "skipped": ' + "[" * 100_000 + "]" * 100_000 + "}"
LINES = [
    DEEP,
    '{"step": 1e999, "split": "train", "event": "recovered", "recoveries": 1}',
    '{"step": 1' + "0" * 400 + ', "split": "train", "loss": 1, "recoveries": 2}',
    '{"step": 3, "split": "train", "loss": 1' + "0" * 400 + "}",
    '{"step": 4, "skipped": [1e999]}',
    '{"step": 5, "split": "train", "loss": 0.5}',
]
LOSSES = [
    '{"step": 1, "split": "train", "training_loss": null}',
    *(f'{{"step": 2, "split": "train", "training_loss": {value}}}' for value in ('"x"', "[]")),
    '{"step": 3, "split": "train", "training_loss": true}',
    '{"step": 4, "split": "train", "training_loss": 0.5}',
]
BRANCH: dict[str, Any] = {
    "format": 1, "parent": "../a", "step": 5, "weights": "", "state": "", "configs": [],
    "changes": [{"path": "a", "from": "1", "to": "2"}], "attempts": [],
}  # fmt: skip


def test_lines_with_hostile_values_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("\n".join(LINES) + "\n")
    assert read_curves(path)[("train", "loss")][5] == 0.5
    assert read_divergence(path) is None
    assert read_recoveries(path) == [(1, 0)]
    assert {record["step"] for record in read_lines(path)} == {3, 4, 5}
    assert [*read_history(tmp_path).losses] == []
    assert read_summary(tmp_path).metrics["loss"] == 0.5
    repair_records(path, lambda note: None)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [3, 4, 5]
    cut_records(path, after=4)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [3, 4]


def test_losses_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("\n".join(LOSSES) + "\n")
    assert read_history(tmp_path).losses == {1: None, 4: 0.5}


@pytest.mark.parametrize(
    ("change", "is_read"),
    [
        ({}, True),
        ({"step": 1e999}, False),
        ({"changes": [{"path": "a", "from": "1", "to": "[["}]}, False),
        ({"changes": [{"path": "a", "from": "1", "to": "!!python/name:os.system"}]}, False),
        ({"changes": [{"path": "a", "from": "1", "to": "-"}]}, True),
        ({"attempts": [5]}, True),
    ],
)
def test_branch_with_values_that_cannot_be_read_is_none(
    change: dict[str, Any], is_read: bool, tmp_path: Path
) -> None:
    (tmp_path / "branch.json").write_text(json.dumps(BRANCH | change))
    found = read_branch(tmp_path)
    assert (found is not None) == is_read
    read_summary(tmp_path)


@pytest.mark.parametrize("value", ['!!int ""', "!!timestamp x", "!!bool x", "!!int x"])
def test_value_that_contradicts_its_yaml_tag_leaves_a_config_unread(
    value: str, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(f"name: {value}\n")
    assert read_settings(tmp_path) == {}
    assert read_setting(tmp_path, "name") is None


@pytest.mark.parametrize(
    ("content", "seconds", "said"),
    [
        (b"12345", 0, ""),
        (b"123", 0, "shrank from 5 to 3 bytes"),
        (b"1234567", 0, "grew from 5 to 7 bytes"),
        (b"12345", 9, "was modified"),
        (None, 0, "cannot be read (No such file or directory)"),
    ],
)
def test_file_that_changes_while_a_run_reads_it_is_named_once(
    content: bytes | None, seconds: int, said: str, tmp_path: Path
) -> None:
    path, notes = tmp_path / "train-0", list[str]()
    path.write_bytes(b"12345")
    before = path.stat().st_mtime_ns
    record = DataRecord(tmp_path / "run", {"train_data": describe_files([path])})
    path.unlink()
    if content is not None:
        path.write_bytes(content)
        os.utime(path, ns=(before, before + seconds * 10**9))
    with log_scope(PlainMessages(notes.append)):
        for step in (20, 40):
            record.on_evaluate(SimpleNamespace(step=step), {})
        record.on_train_end(SimpleNamespace(step=60))
    expected = f"warning: {path}: {said} since the run started, noticed at step 20; train_data"
    assert [note[: len(expected)] for note in notes] == [expected] * bool(said)
