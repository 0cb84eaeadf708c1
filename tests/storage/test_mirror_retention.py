"""Checkpoints in a store that a rule keeps survive that the run continues on another machine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orbit_runner.checkpoint.directory import CheckpointFolder, Retention
from orbit_runner.checkpoint.ranking import Entry, KeepRanked, steps_by_rank
from orbit_runner.checkpoint.record import CheckpointRecord
from orbit_runner.run_directory import remote_runs
from orbit_runner.run_directory.remote_copy import Mirror, groups_of
from orbit_runner.storage.objects import ObjectStore

from .test_mirror import open_copy


def _commit(folder: CheckpointFolder, step: int) -> None:
    prefix = folder.begin_write(step)
    for suffix in (".data-00000-of-00001", ".index"):
        prefix.with_suffix(suffix).write_text(f"{step}{suffix}", encoding="utf-8")
    folder.commit(prefix, CheckpointRecord(step=step, weights="w", state="s"))


def _save(path: Path, step: int, rule: Retention) -> None:
    _commit(CheckpointFolder(path / "checkpoints", keep=rule, run=path), step)


def _steps(store: ObjectStore, series: str) -> list[int]:
    return [group.step for group in groups_of(store.list()) if group.series == series]


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        (Retention(max_to_keep=1), [50]),
        (Retention(max_to_keep=1, step_interval=20), [20, 40, 50]),
        # When they were saved is known only on the machine that saved them, so all of them stay.
        (Retention(max_to_keep=1, time_interval=1e9), [10, 40, 50]),
    ],
)
def test_older_checkpoints_stay_in_the_store(
    rule: Retention, kept: list[int], store: ObjectStore
) -> None:
    first = open_copy(store, "me", "")
    for step in (10, 20, 30, 40):
        _save(first.path, step, rule)
    Mirror(first, lambda: True, keep=rule).finish()
    shutil.rmtree(first.path.parent)
    second = open_copy(store, "other", "me")
    assert CheckpointFolder(second.path / "checkpoints").committed_steps() == [40]
    _save(second.path, 50, rule)
    Mirror(second, lambda: True, keep=rule).finish()
    assert _steps(store, "checkpoints/ckpt") == kept


def test_all_best_checkpoints_are_downloaded(store: ObjectStore) -> None:
    first = open_copy(store, "me", "")
    rule = KeepRanked()
    rule.ranking = [Entry(3.0, 20), Entry(2.0, 10), Entry(1.0, 30)]
    for step in (10, 20, 30):
        _commit(CheckpointFolder(first.path / "best", name="best", keep=rule), step)
        _save(first.path, step, Retention(max_to_keep=3))
    Mirror(first, lambda: True, keep=3).finish()
    wanted = remote_runs.newest_checkpoints(store.list())
    assert [group.step for group in groups_of(wanted) if group.series == "best/best"] == [
        10,
        20,
        30,
    ]
    shutil.rmtree(first.path.parent)
    second = open_copy(store, "other", "me")
    assert CheckpointFolder(second.path / "checkpoints").committed_steps() == [30]
    assert steps_by_rank(CheckpointFolder(second.path / "best", name="best")) == [30, 10, 20]
