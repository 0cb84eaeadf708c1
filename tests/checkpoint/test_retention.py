"""Which checkpoints are kept: the newest, by step, and the best."""

import pytest

from orbit_runner.checkpoint.directory import (
    CheckpointFolder,
    Entry,
    KeepRanked,
    Retention,
    insert_entry,
    ranking_on_disk,
    steps_by_rank,
)
from orbit_runner.checkpoint.latest_checkpoint import choose_checkpoint
from orbit_runner.checkpoint.record import CheckpointRecord
from tests.support.damage import DATA, flip

NAN = float("nan")


def _write(folder, step, **result):
    prefix = folder.begin_write(step)
    prefix.with_name(f"{prefix.name}.index").write_bytes(b"index" * step)
    prefix.with_name(f"{prefix.name}.{DATA}").write_bytes(b"data" * step)
    folder.commit(prefix, CheckpointRecord(step=step, weights="w", state="s", result=result))


def _higher(value, than):
    return value > than


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        (Retention(max_to_keep=2), [90, 100]),
        (Retention(max_to_keep=None), [*range(0, 101, 10)]),
        (Retention(max_to_keep=1, step_interval=30), [30, 60, 90, 100]),
        (Retention(max_to_keep=2, step_interval=30), [30, 60, 80, 90, 100]),
    ],
)
def test_kept_checkpoints_follow_the_rule(rule, kept):
    left = []
    for step in range(0, 101, 10):  # Each step is saved, one after another.
        left = rule([*left, step])
    assert left == kept


@pytest.mark.parametrize(
    ("values", "ranked"),
    [
        ([1.0, 2.0, 3.0], [3, 2]),
        ([3.0, 2.0, 1.0], [1, 2]),
        ([2.0, 2.0, 2.0], [1, 2]),  # Of equal results, the earlier one ranks first.
        ([2.0, 3.0, 2.0], [2, 1]),
        ([NAN, 1.0, NAN], [2]),
        ([float("inf"), 1.0, 2.0], [3, 2]),
        ([NAN], []),
    ],
)
def test_ranking_has_the_best_results(values, ranked):
    ranking = []
    for step, value in enumerate(values, start=1):
        ranking = insert_entry(ranking, Entry(value, step), _higher, 2) or ranking
    assert [entry.step for entry in ranking] == ranked


@pytest.mark.parametrize(("value", "ranked"), [(2.0, None), (1.0, None), (5.0, [2, 1])])
def test_step_that_is_evaluated_again_is_ranked_once(value, ranked):
    entries = insert_entry([Entry(3.0, 1), Entry(2.0, 2)], Entry(value, 2), _higher, 3)
    assert (entries and [entry.step for entry in entries]) == ranked


@pytest.fixture
def best(tmp_path):
    """The best checkpoints of a run, ranked 200, 100, 300."""
    rule = KeepRanked()
    folder = CheckpointFolder(tmp_path / "best", name="best", keep=rule)
    rule.ranking = [Entry(3.0, 200), Entry(2.0, 100), Entry(1.0, 300)]
    for step, value in ((100, 2.0), (200, 3.0), (300, 1.0)):
        _write(folder, step, m=value)
    return folder


def test_best_checkpoint_is_found_by_its_rank(best, tmp_path):
    assert best.steps() == [100, 200, 300]
    assert steps_by_rank(best) == [300, 100, 200]
    notes = []
    for requested, step in ((None, 200), ("best", 200), ("best-300", 300)):
        choice = choose_checkpoint(tmp_path, requested, "best", notes.append)
        assert (choice.step, choice.is_best) == (step, True)
    assert notes == []
    flip(best.path / f"best-200.{DATA}")
    assert choose_checkpoint(tmp_path, "best", "best", notes.append).step == 100
    assert "best-200 is damaged and ignored" in notes[0]


def test_checkpoint_of_a_killed_process_ranks_last(best):
    listed = (best.path / "checkpoint").read_text()
    CheckpointFolder(best.path, name="best", keep=None).begin_write(400)
    _write(CheckpointFolder(best.path, name="best", keep=None), 400, m=9.0)
    (best.path / "checkpoint").write_text(listed)
    assert steps_by_rank(best) == [400, 300, 100, 200]


def test_ranking_is_read_from_the_records(best):
    entries = ranking_on_disk(best, "m", _higher)
    assert [entry.step for entry in entries] == [200, 100, 300]
    assert ranking_on_disk(best, "other", _higher) == []
    (best.path / "best-200.json").write_text("{")
    assert [entry.step for entry in ranking_on_disk(best, "m", _higher)] == [100, 300]


@pytest.mark.parametrize("needed", [frozenset[int](), frozenset({300})])
def test_checkpoints_that_the_latest_one_ranks_are_kept(best, needed):
    rule = KeepRanked()
    rule.ranking, rule.needed = [Entry(3.0, 200), Entry(2.5, 400), Entry(2.0, 100)], needed
    _write(CheckpointFolder(best.path, name="best", keep=rule), 400, m=2.5)
    assert best.steps() == [100, 200, *sorted(needed), 400]
    assert steps_by_rank(best)[-3:] == [100, 400, 200]
