"""Checkpoints on disk: committing, retention, damage, and setting damaged ones aside."""

import json
from pathlib import Path

import pytest
import tensorflow as tf

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.record import CheckpointRecord, read_record
from tests.support.damage import DATA, empty, flip, truncate


def _written(folder, step):
    prefix = folder.begin_write(step)
    prefix.with_name(f"{prefix.name}.index").write_bytes(b"index" * step)
    prefix.with_name(f"{prefix.name}.{DATA}").write_bytes(b"data" * step)
    return prefix


def _commit(folder, *steps):
    for step in steps:
        record = CheckpointRecord(step=step, weights="w", state="s", numerics={"threads": "2"})
        folder.commit(_written(folder, step), record)


def test_uncommitted_checkpoint_is_ignored_and_cleared(tmp_path):
    folder = CheckpointFolder(tmp_path)
    _commit(folder, 1)
    _written(folder, 2)
    assert folder.steps() == [1]
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "ckpt-1")
    folder.clear_leftovers()
    names = ["checkpoint", f"ckpt-1.{DATA}", "ckpt-1.index", "ckpt-1.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_commit_renames_the_index_after_data_and_record(tmp_path, monkeypatch):
    order = []
    replace = Path.replace

    def watched(self, target):
        order.append(target.name)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    _commit(CheckpointFolder(tmp_path), 3)
    assert order == [f"ckpt-3.{DATA}", "ckpt-3.json", "ckpt-3.index", "checkpoint"]


def test_old_checkpoints_are_deleted_only_after_the_new_one_is_complete(tmp_path, monkeypatch):
    folder = CheckpointFolder(tmp_path, keep=2)
    _commit(folder, 1, 2)
    seen = []
    unlink = Path.unlink

    def watched(self, missing_ok=False):
        seen.append(folder.problem(3))
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", watched)
    _commit(folder, 3)
    assert folder.steps() == [2, 3]
    assert seen == [None, None, None]
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert [Path(path).name for path in state.all_model_checkpoint_paths] == ["ckpt-2", "ckpt-3"]


def test_commit_of_an_earlier_step_deletes_later_checkpoints(tmp_path):
    folder = CheckpointFolder(tmp_path, keep=3)
    _commit(folder, 10, 20, 30, 15)
    assert folder.steps() == [10, 15]


@pytest.mark.parametrize("file", ["index", DATA])
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (truncate, "bytes instead of"),
        (flip, "has changed since it was written"),
        (Path.unlink, "is missing"),
        (empty, "has 0 bytes"),
    ],
)
def test_damaged_file_is_reported_and_checkpoint_set_aside(spoil, said, file, tmp_path):
    folder = CheckpointFolder(tmp_path)
    _commit(folder, 6, 7)
    spoil(tmp_path / f"ckpt-7.{file}")
    problem = str(folder.problem(7))
    assert f"ckpt-7.{file}" in problem
    assert said in problem
    assert folder.steps() == [6, 7]
    place = folder.set_aside(7)
    assert folder.steps() == [6]
    assert place == tmp_path / "damaged" / "ckpt-7"
    assert (place / "ckpt-7.json").exists()
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "ckpt-6")


def test_checkpoint_without_record_is_damaged(tmp_path):
    folder = CheckpointFolder(tmp_path)
    _commit(folder, 7)
    (tmp_path / "ckpt-7.json").unlink()
    assert str(folder.problem(7)) == "is damaged: ckpt-7.json is missing"


def test_two_damaged_checkpoints_of_one_step_are_both_kept(tmp_path):
    folder = CheckpointFolder(tmp_path)
    _commit(folder, 1, 7)
    first = folder.set_aside(7)
    _commit(folder, 7)
    assert folder.set_aside(7) != first
    assert len(list((tmp_path / "damaged").iterdir())) == 2


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"step": 7, "files": {}}', "null"])
def test_corrupt_record_makes_the_checkpoint_damaged(text, tmp_path):
    folder = CheckpointFolder(tmp_path)
    _commit(folder, 7)
    (tmp_path / "ckpt-7.json").write_text(text)
    assert "ckpt-7.json cannot be read" in str(folder.problem(7))
    with pytest.raises(
        ValueError, match=r"not a checkpoint record|Expecting|expected a JSON object"
    ):
        read_record(tmp_path / "ckpt-7.json")


def test_unrelated_files_in_the_checkpoint_directory_are_ignored(tmp_path):
    for name in ("ckpt-x.index", "ckpt-5.index.tmp", "best-5.index", "ckpt-5.txt"):
        (tmp_path / name).write_text("")
    folder = CheckpointFolder(tmp_path, keep=1)
    assert folder.steps() == []
    _commit(folder, 8)
    assert (tmp_path / "best-5.index").exists()
    assert json.loads((tmp_path / "ckpt-8.json").read_text())["step"] == 8
