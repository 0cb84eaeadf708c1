"""A run directory in a store: what is uploaded, in which order, and what another machine gets."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from urllib.parse import unquote

import pytest

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.checkpoint.record import CheckpointRecord
from orbit_runner.run_directory import remote_runs
from orbit_runner.run_directory.remote_copy import Mirror, WorkingCopy, groups_of
from orbit_runner.storage.objects import RETRY_VARIABLE, ObjectStore
from tests.support.problems import raises

from .conftest import Proxy


def write_checkpoint(path: Path, step: int, keep: int = 2, content: str = "") -> None:
    """Commits a checkpoint as a run does; its tensors are made up."""
    folder = CheckpointFolder(path / "checkpoints", keep=keep, run=path)
    prefix = folder.begin_write(step)
    for suffix in (".data-00000-of-00001", ".index"):
        prefix.with_suffix(suffix).write_text(f"{content or step}{suffix}", encoding="utf-8")
    folder.commit(prefix, CheckpointRecord(step=step, weights="w", state="s"))
    with (path / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"step": step}) + "\n")


def open_copy(store: ObjectStore, owner: str, previous: str) -> WorkingCopy:
    copy = WorkingCopy(store)
    copy.prepare(owner, previous)
    return copy


def finish(copy: WorkingCopy, keep: int = 2) -> None:
    Mirror(copy, lambda: True, keep=keep).finish()


def steps(store: ObjectStore) -> list[int]:
    return sorted({group.step for group in groups_of(store.list())})


def changes(proxy: Proxy, store: ObjectStore) -> list[str]:
    """Returns the PUTs and DELETEs of a run since the last call, in order."""
    prefix = f"/bucket/{store.url.removeprefix('s3://bucket/')}/"
    requests, proxy.requests = proxy.requests, []
    return [
        f"{method} {unquote(path).removeprefix(prefix).partition('?')[0]}"
        for method, path in requests
        if method in ("PUT", "DELETE")
    ]


def test_checkpoint_is_uploaded_in_commit_order_before_the_old_one_is_deleted(
    store: ObjectStore, proxy: Proxy
) -> None:
    copy = open_copy(store, "me", "")
    write_checkpoint(copy.path, 10, keep=1)
    finish(copy, keep=1)
    changes(proxy, store)

    write_checkpoint(copy.path, 20, keep=1)
    finish(copy, keep=1)

    made = changes(proxy, store)
    ckpt = "checkpoints/ckpt"
    in_order = [
        "PUT metrics.jsonl",
        f"PUT {ckpt}-20.data-00000-of-00001",
        f"PUT {ckpt}-20.json",
        f"PUT {ckpt}-20.index",
        "PUT checkpoint",
        f"DELETE {ckpt}-10.index",
        f"DELETE {ckpt}-10.data-00000-of-00001",
    ]
    assert [one for one in made if one in in_order] == in_order
    assert steps(store) == [20]
    assert [*(copy.outbox).rglob("*.index")] == []


def test_unchanged_files_are_not_uploaded_again(store: ObjectStore, proxy: Proxy) -> None:
    copy = open_copy(store, "me", "")
    write_checkpoint(copy.path, 10)
    finish(copy)
    changes(proxy, store)

    finish(open_copy(store, "me-2", "me"))

    assert changes(proxy, store) == []


def test_index_is_deleted_while_a_checkpoint_is_replaced(store: ObjectStore, proxy: Proxy) -> None:
    copy = open_copy(store, "me", "")
    write_checkpoint(copy.path, 10)
    finish(copy)
    changes(proxy, store)

    write_checkpoint(copy.path, 10, content="another")
    finish(copy)

    ckpt = "checkpoints/ckpt-10"
    made = [one for one in changes(proxy, store) if ckpt in one]
    assert made == [
        f"DELETE {ckpt}.index",
        f"PUT {ckpt}.data-00000-of-00001",
        f"PUT {ckpt}.json",
        f"PUT {ckpt}.index",
    ]


def test_local_and_partially_written_files_are_not_uploaded(store: ObjectStore) -> None:
    copy = open_copy(store, "me", "")
    (copy.path / ".lock").write_text("{}", encoding="utf-8")
    (copy.path / ".run.json.7").write_text("{", encoding="utf-8")
    (copy.path / "checkpoints" / ".writing-5").mkdir(parents=True)
    (copy.path / "checkpoints" / ".writing-5" / "ckpt-5.index").write_text("", encoding="utf-8")
    (copy.path / "checkpoints" / "ckpt-7.data-00000-of-00001").write_text("", encoding="utf-8")
    (copy.path / "metrics.jsonl").write_text('{"step": 1}\n{"st', encoding="utf-8")

    finish(copy)

    assert [*store.list()] == ["metrics.jsonl"]
    assert store.read("metrics.jsonl") == b'{"step": 1}\n'


def test_another_machine_downloads_small_files_and_the_newest_checkpoint(
    store: ObjectStore,
) -> None:
    first = open_copy(store, "me", "")
    for step in (10, 20, 30):
        write_checkpoint(first.path, step, keep=3)
    (first.path / "train").mkdir()
    (first.path / "train" / "events.out.tfevents.1").write_text("x", encoding="utf-8")
    finish(first, keep=3)
    shutil.rmtree(first.path.parent)

    second = open_copy(store, "other", "me")

    folder = CheckpointFolder(second.path / "checkpoints", keep=3)
    assert folder.committed_steps() == [30]
    assert folder.damage(30) == ""
    assert (second.path / "metrics.jsonl").read_text(encoding="utf-8").count("\n") == 3
    assert not (second.path / "train").exists()
    assert steps(store) == [10, 20, 30]
    # Checkpoints that this machine never had are deleted too, if there are too many.
    write_checkpoint(second.path, 40, keep=3)
    finish(second, keep=3)
    assert steps(store) == [20, 30, 40]
    assert "train/events.out.tfevents.1" in store.list()


def test_intact_checkpoint_is_downloaded_if_the_newest_is_damaged(
    store: ObjectStore,
) -> None:
    first = open_copy(store, "me", "")
    write_checkpoint(first.path, 10)
    write_checkpoint(first.path, 20)
    finish(first)
    store.write("checkpoints/ckpt-20.data-00000-of-00001", b"20.data damaged")
    shutil.rmtree(first.path.parent)

    second = open_copy(store, "other", "me")

    folder = CheckpointFolder(second.path / "checkpoints")
    assert [step for step in folder.committed_steps() if not folder.damage(step)] == [10]


def test_same_machine_continues_with_files_it_had_not_uploaded(
    store: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = open_copy(store, "me", "")
    write_checkpoint(copy.path, 10)
    finish(copy)
    write_checkpoint(copy.path, 20)

    again = open_copy(store, "me-2", "me")

    assert "files that were not uploaded" in capsys.readouterr().err
    finish(again)
    assert steps(store) == [10, 20]


def test_store_takes_precedence_if_another_machine_has_trained_since(
    store: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = open_copy(store, "me", "")
    write_checkpoint(copy.path, 10)
    finish(copy)
    write_checkpoint(copy.path, 20)
    store.write("config.yaml", b"by another machine")

    again = open_copy(store, "me-2", "other")

    assert CheckpointFolder(again.path / "checkpoints").committed_steps() == [10]
    assert (again.path / "config.yaml").read_text(encoding="utf-8") == "by another machine"
    told = capsys.readouterr().err
    (aside,) = (one for one in again.path.parent.iterdir() if one.name.startswith("run."))
    assert str(aside) in told
    assert CheckpointFolder(aside / "checkpoints").committed_steps() == [10, 20]


def test_leftovers_of_a_killed_upload_are_removed(store: ObjectStore) -> None:
    store.write("checkpoints/ckpt-5.data-00000-of-00001", b"half a checkpoint")

    copy = open_copy(store, "me", "")
    assert not (copy.path / "checkpoints").exists()
    write_checkpoint(copy.path, 10)
    finish(copy)

    assert steps(store) == [10]


def test_nothing_is_uploaded_without_the_lock(store: ObjectStore) -> None:
    copy = open_copy(store, "me", "")
    write_checkpoint(copy.path, 10)

    with raises("not-writable"):
        Mirror(copy, lambda: False, keep=2).finish()

    assert store.list() == {}


def test_background_uploads_survive_a_temporary_store_outage(
    store: ObjectStore,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(RETRY_VARIABLE, "0.2")
    copy = open_copy(store, "me", "")
    proxy.fail("busy")
    mirror = Mirror(copy, lambda: True, keep=1)
    mirror.start()
    told = ""
    step = 0
    end = time.monotonic() + 600
    while "training continues" not in told:
        assert time.monotonic() < end
        step += 1
        write_checkpoint(copy.path, step, keep=1)
        told += capsys.readouterr().err
    proxy.mode = "up"

    mirror.finish()

    assert f"cannot write {store.url}" in told
    assert steps(store) == [step]


def test_evaluation_follows_the_run_and_uploads_only_its_own_files(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_runs, "_POLL_SECONDS", 0.05)
    trained = open_copy(store, "me", "")
    write_checkpoint(trained.path, 10, keep=1)
    finish(trained, keep=1)

    with remote_runs.evaluation_scope(store.url, summaries="validation", follows=True) as folder:
        checkpoints = CheckpointFolder(folder / "checkpoints")
        assert checkpoints.committed_steps() == [10]
        write_checkpoint(trained.path, 20, keep=1)
        finish(trained, keep=1)
        end = time.monotonic() + 60
        while checkpoints.committed_steps() != [20]:
            assert time.monotonic() < end
            time.sleep(0.02)
        assert checkpoints.damage(20) == ""
        (folder / "metrics.jsonl").write_text("", encoding="utf-8")
        (folder / "run.eval.json").write_text("{}", encoding="utf-8")
        (folder / "validation").mkdir()
        (folder / "validation" / "events.out.tfevents.2").write_text("x", encoding="utf-8")

    assert not folder.exists()
    found = store.list()
    assert {"run.eval.json", "validation/events.out.tfevents.2"} <= {*found}
    assert store.read("metrics.jsonl").count(b"\n") == 2


def test_evaluating_a_url_without_a_run_is_rejected(url: str) -> None:
    with (
        raises("missing-file"),
        remote_runs.evaluation_scope(url, summaries="validation", follows=False),
    ):
        pass
