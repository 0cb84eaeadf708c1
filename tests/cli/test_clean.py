"""`runner clean`: what each rule deletes, and what it never touches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.checkpoint.directory import CheckpointFolder, Entry, KeepRanked, steps_by_rank
from orbit_runner.checkpoint.record import CheckpointRecord
from orbit_runner.cli.main import main
from orbit_runner.jobs.clean import delete_items, make_plan
from orbit_runner.run_directory.run_reader import RunReader
from tests.support import warm_runner
from tests.support.damage import DATA, flip
from tests.support.problems import fails
from tests.support.run_directories import lock_holder, write_run

Clean = Callable[..., str]
DIVERGED = "Diverged: training diverged: loss is nan"
pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def clean(capsys):
    """Runs the command, which must succeed, and returns its output and messages."""

    def run(*arguments: str) -> str:
        assert main(["clean", *arguments]) == 0
        captured = capsys.readouterr()
        return captured.out + captured.err

    return run


def _commit(folder: CheckpointFolder, step: int) -> None:
    prefix = folder.begin_write(step)
    prefix.with_name(f"{prefix.name}.index").write_bytes(b"i")
    prefix.with_name(f"{prefix.name}.{DATA}").write_bytes(b"d" * 1000)
    folder.commit(prefix, CheckpointRecord(step=step, weights="w", state="s"))


def make_run(path: Path, *steps: int, best: tuple[int, ...] = (), **record: Any) -> Path:
    """Writes a run with checkpoints, and with best checkpoints, the best one first."""
    write_run(path, flags=[("trainer.best_checkpoint_export_subdir", "best")], **record)
    for step in steps or (100, 200, 300):
        _commit(CheckpointFolder(path / "checkpoints", keep=None, run=path), step)
    rule = KeepRanked()
    rule.ranking = [Entry(-float(rank), step) for rank, step in enumerate(best)]
    for step in sorted(best):
        _commit(CheckpointFolder(path / "best", name="best", keep=rule), step)
    return path


def steps_of(run: Path) -> list[int]:
    return CheckpointFolder(run / "checkpoints").steps()


def _fail(*_: object) -> None:
    raise KeyboardInterrupt


def test_checkpoints_are_shown_first_and_deleted_with_yes(tmp_path, clean, capsys, monkeypatch):
    run = make_run(tmp_path / "runs" / "a")
    make_run(tmp_path / "runs" / "b", 300)
    text = clean("--keep_last=1")
    assert "2 checkpoints: 100, 200" in text
    assert "of 1 run; nothing was deleted (--yes deletes it)" in text
    assert steps_of(run) == [100, 200, 300]
    with monkeypatch.context() as patch:
        patch.setattr("orbit_runner.cli.commands.clean.delete_items", _fail)
        assert main(["clean", "--keep_last=1", "--yes"]) == 130
    assert "2 checkpoints: 100, 200" in capsys.readouterr().out
    assert "deleted" in clean("--keep_last=1", "--yes")
    assert steps_of(run) == [300]
    assert "ckpt-100" not in (run / "checkpoints" / "checkpoint").read_text()
    assert 'checkpoints/ckpt-300"' in (run / "checkpoint").read_text()
    assert clean("--keep_last=1", "--yes") == "nothing to delete\n"


def test_best_checkpoints_are_deleted_by_rank(tmp_path, clean):
    run = make_run(tmp_path / "runs" / "a", 300, best=(200, 100, 300))
    clean("--keep_last=1", "--yes")
    assert steps_by_rank(CheckpointFolder(run / "best", name="best")) == [300, 100, 200]
    assert "1 best checkpoint: 300" in clean("--keep_best=2", "--yes")
    assert "1 best checkpoint: 100" in clean("runs/a", "--keep_best=1", "--yes")
    assert steps_by_rank(CheckpointFolder(run / "best", name="best")) == [200]


def test_latest_checkpoint_is_kept_with_the_incomplete_one_after_it(tmp_path, clean):
    run = make_run(tmp_path / "runs" / "a")
    (run / "checkpoints" / "ckpt-300.index").unlink()
    (run / "checkpoints" / "ckpt-150.json").write_text("{}")
    clean("--keep_last=1", "--yes")
    assert steps_of(run) == [200, 300]


def test_nothing_is_deleted_if_no_intact_checkpoint_would_be_left(tmp_path, clean):
    run = make_run(tmp_path / "runs" / "a", best=(100, 200))
    flip(run / "checkpoints" / f"ckpt-300.{DATA}")
    text = clean("--keep_last=1", "--yes")
    assert "not touched: runs/a: no intact checkpoint would be left" in text
    assert "of 1 run; nothing was deleted\n" in text
    assert steps_of(run) == [100, 200, 300]
    clean("--keep_last=2", "--yes")
    assert steps_of(run) == [200, 300]


def test_links_are_not_followed(tmp_path, clean):
    run = make_run(tmp_path / "elsewhere" / "a", outcome=DIVERGED)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a").symlink_to(run, target_is_directory=True)
    assert clean("--keep_last=1", "--yes") == "nothing to delete\n"
    assert "not touched: runs/a: it is a symbolic link" in clean("runs/a", "--keep_last=1", "--yes")
    other = make_run(tmp_path / "runs" / "b")
    (other / "checkpoints").rename(tmp_path / "checkpoints")
    (other / "checkpoints").symlink_to(tmp_path / "checkpoints", target_is_directory=True)
    assert clean("runs/b", "--keep_last=1", "--yes") == "nothing to delete\n"
    assert steps_of(other) == [100, 200, 300]


@pytest.fixture
def held(tmp_path):
    """A run whose lock another process has."""
    run = make_run(tmp_path / "runs" / "a", outcome=DIVERGED)
    with lock_holder(run):
        yield run


def test_run_of_another_process_is_not_touched(held, clean):
    text = clean("--keep_last=1", "--yes")
    assert "nothing to delete" in text
    assert steps_of(held) == [100, 200, 300]
    assert "not touched: runs/a: another process is training in it" in text


@pytest.mark.parametrize(
    ("outcome", "since", "is_deleted"),
    [
        ("done", "2026-11-20T10:00:00+0000", True),  # It recorded its end since then.
        ("done", "2026-11-21T10:00:00+0000", False),
        (None, "2026-11-20T10:00:00+0000", False),
    ],
)
def test_lock_of_another_machine_counts_unless_the_run_has_ended(
    outcome, since, is_deleted, tmp_path, clean
):
    run = make_run(tmp_path / "runs" / "a", outcome=outcome)
    (run / ".lock").write_text(json.dumps({"process": 1, "host": "elsewhere", "since": since}))
    text = clean("--keep_last=1", "--yes")
    assert ("a process on elsewhere may be training in it" in text) is not is_deleted
    assert steps_of(run) == ([300] if is_deleted else [100, 200, 300])


def test_run_that_changed_since_it_was_shown_is_not_touched(tmp_path):
    run = make_run(tmp_path / "a")
    plan = make_plan(RunReader(run), keep_last=1)
    _commit(CheckpointFolder(run / "checkpoints", keep=None), 400)
    assert "changed since it was listed" in delete_items(plan)
    assert steps_of(run) == [100, 200, 300, 400]


def test_json_lists_what_is_deleted(tmp_path, capsys, clean):
    run = make_run(tmp_path / "runs" / "a", 100, 200)
    output = json.loads(clean("--keep_last=1", "--json"))
    (row,) = output["runs"]
    assert (row["run"], row["status"], row["deleted"]) == (
        "runs/a",
        "finished",
        False,
    )
    (item,) = row["items"]
    assert item["files"] == [f"checkpoints/ckpt-100.{end}" for end in (DATA, "index", "json")]
    sizes = sum((run / name).stat().st_size for name in item["files"])
    assert (output["bytes"], item["bytes"], output["bytes_deleted"]) == (sizes, sizes, 0)
    output = json.loads(clean("--keep_last=1", "--json", "--yes"))
    assert (output["bytes_deleted"], output["runs"][0]["deleted"]) == (sizes, True)
    empty = {"runs": [], "bytes": 0, "bytes_deleted": 0, "not_touched": {}}
    assert json.loads(clean("--keep_last=1", "--json", "--yes")) == empty


@pytest.mark.parametrize(
    ("flags", "code", "path"),
    [
        ([], "nothing-selected", ""),
        (["--keep_last=0"], "out-of-range", "--keep_last"),
        (["--keep_best=-1"], "out-of-range", "--keep_best"),
        (["nowhere", "--keep_last=1"], "missing-file", "DIR"),
        (["gs://bucket/runs", "--keep_last=1"], "bad-path", "DIR"),
    ],
)
def test_wrong_use_is_an_error(flags, code, path, tmp_path):
    run = make_run(tmp_path / "runs" / "a", outcome=DIVERGED)
    make_run(tmp_path / "runs" / "b")
    fails(["clean", *flags, "--yes"], code, path)
    assert steps_of(run) == [100, 200, 300]


@pytest.mark.promise("commands", "`runner clean` leaves runs that can be resumed")
@pytest.mark.slow
def test_cleaned_run_is_verified_resumed_and_reported(tmp_path, clean):
    def runner(*arguments: str) -> str:
        # Not in this process, which would keep the lock of the run.
        completed = warm_runner.run(*arguments, check=True)
        return completed.stdout + completed.stderr

    flags = ["run", "--experiment=digits_mlp", "--trainer.checkpoint_interval=2", "--model_dir=a",
             "--trainer.validation_interval=2", "--trainer.best_checkpoint_export_subdir=best",
             "--trainer.best_checkpoint_eval_metric=accuracy", "--trainer.export_subdir=out",
             "--trainer.best_checkpoints_to_keep=3", "--trainer.profile_steps=[1,2]"]  # fmt: skip
    runner(*flags, "--train_steps=6")
    assert "deleted" in clean("a", "--keep_last=1", "--keep_best=1", "--yes")
    assert steps_of(tmp_path / "a") == [6]
    assert "a: intact, 2 checkpoints read" in runner("verify", "a")
    runner("report", "a")
    assert "restored step 6" in runner(*flags, "--train_steps=8")
    assert steps_of(tmp_path / "a") == [6, 8]
