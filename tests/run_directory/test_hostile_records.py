"""Records of a run that a stranger wrote: too deep, too large, or with values of other types."""

import json

import pytest

from orbit_runner.run_directory.branch import read_branch
from orbit_runner.run_directory.config import read_settings
from orbit_runner.run_directory.metric_records import (
    MetricLog,
)
from orbit_runner.run_directory.run_reader import RunReader, read_history
from orbit_runner.utils.files import cut_records, read_lines

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
BRANCH = {
    "format": 1, "parent": "../a", "step": 5, "weights": "", "state": "", "configs": [],
    "changes": [{"path": "a", "from": "1", "to": "2"}],
}  # fmt: skip


def test_lines_with_hostile_values_are_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("\n".join(LINES) + "\n")
    assert MetricLog(path).curves()[0][("train", "loss")][5] == 0.5
    assert MetricLog(path).divergence() is None
    assert MetricLog(path).recoveries() == [(1, 0)]
    assert {record["step"] for record in read_lines(path)} == {3, 4, 5}
    assert [*read_history(tmp_path).losses] == []
    assert RunReader(tmp_path).metrics["loss"] == 0.5
    cut_records(path, after=5)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [3, 4, 5]
    cut_records(path, after=4)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [3, 4]


def test_losses_that_are_no_numbers_are_left_out(tmp_path):
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
    ],
)
def test_branch_with_values_that_cannot_be_read_is_none(change, is_read, tmp_path):
    (tmp_path / "branch.json").write_text(json.dumps(BRANCH | change))
    branch = read_branch(tmp_path)
    assert (branch is not None) == is_read
    assert isinstance(RunReader(tmp_path).changes, dict)


@pytest.mark.parametrize("value", ['!!int ""', "!!timestamp x", "!!bool x", "!!int x"])
def test_value_that_contradicts_its_yaml_tag_leaves_a_config_unread(value, tmp_path):
    (tmp_path / "config.yaml").write_text(f"name: {value}\n")
    assert read_settings(tmp_path) == {}
