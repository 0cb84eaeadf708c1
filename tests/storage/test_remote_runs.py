"""Runs whose directory is in an object store: processes that are killed, rejected and resumed."""

from __future__ import annotations

import contextlib
import io
import json
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from orbit_runner.checkpoint.directory import CheckpointFolder, save_listeners
from orbit_runner.checkpoint.record import CheckpointRecord
from orbit_runner.cli.main import main
from orbit_runner.run_directory.remote_runs import OWNER, training_scope
from orbit_runner.storage.objects import ObjectStore
from tests.support import warm_runner
from tests.support.problems import error_of, output_of, raises

from .conftest import Proxy

_DIGITS = (
    "--experiment=digits",
    "--trainer.train_epochs=0",
    "--trainer.train_steps=200",
    "--trainer.checkpoint_interval=20",
    "--trainer.validation_interval=100",
    "--trainer.max_to_keep=3",
    "--trainer.steps_per_loop=20",
    "--progress=plain",
    "--json",
)


def newest_step(store: ObjectStore) -> int:
    matches = (re.fullmatch(r"checkpoints/ckpt-(\d+)\.index", name) for name in store.list())
    return max((int(match[1]) for match in matches if match), default=0)


def save(run: Path, step: int, content: str = "") -> None:
    """Commits a checkpoint as a run does; its tensors are made up."""
    folder = CheckpointFolder(run / "checkpoints", keep=1, run=run)
    prefix = folder.begin_write(step)
    for suffix in (".data-00000-of-00001", ".index"):
        prefix.with_suffix(suffix).write_text(f"{content or step}{suffix}", encoding="utf-8")
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"step": step}) + "\n")
    folder.commit(prefix, CheckpointRecord(step=step, weights="w", state="s"))
    for listener in save_listeners:
        listener()


def changes(proxy: Proxy, store: ObjectStore) -> list[str]:
    """Returns the PUTs and DELETEs of a run since the last call, in order."""
    prefix = f"/bucket/{store.url.removeprefix('s3://bucket/')}/"
    requests, proxy.requests = proxy.requests, []
    return [
        f"{method} {unquote(path).removeprefix(prefix).partition('?')[0]}"
        for method, path in requests
        if method in ("PUT", "DELETE")
    ]


def wait_for(event: Callable[[], Any], going: Callable[[], bool]) -> None:
    end = time.monotonic() + 200
    while not event():
        assert time.monotonic() < end
        assert going()
        time.sleep(0.05)


@contextlib.contextmanager
def meanwhile(event: Callable[[], Any], action: Callable[[], None]) -> Iterator[None]:
    """Runs an action in a thread as soon as an event has happened."""
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            if event():
                action()
                return
            time.sleep(0.05)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The results of the same run on a local disk."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main([*_DIGITS, f"--model_dir={folder}"]) == 0
    return json.loads(out.getvalue())


@pytest.mark.slow
def test_killed_run_resumes_exactly_on_another_machine(
    undisturbed, store, here, monkeypatch, capsys
):
    arguments = [*_DIGITS, f"--model_dir={store.url}"]
    with (here / "err").open("w") as err:
        first = warm_runner.start(*arguments, stdout=subprocess.DEVNULL, stderr=err)
    wait_for(lambda: newest_step(store) >= 40, lambda: first.poll() is None)
    # A second process is rejected while the first one lives.
    assert main(arguments) == 2
    told = capsys.readouterr().err
    first.kill()
    first.wait()
    assert f"another process is training in {store.url}" in told
    assert f"process {first.pid} on " in told
    left_at = newest_step(store)
    assert left_at < 200

    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "another"))
    assert main(arguments) == 0

    told = capsys.readouterr()
    output = json.loads(told.out)
    assert f"restored step {left_at} from {here}/another/" in told.err
    assert output["fingerprint"] == undisturbed["fingerprint"]
    assert output["metrics"]["accuracy"] == undisturbed["metrics"]["accuracy"]
    assert output["best"] == undisturbed["best"]
    assert output["model_dir"] == store.url
    steps = [json.loads(line)["step"] for line in store.read("metrics.jsonl").splitlines()]
    assert steps == sorted(steps)
    assert {path.name for path in here.iterdir()} == {"err", "cache", "another"}
    assert json.loads(store.read("run.json"))["attempts"][-1]["outcome"] == "done"
    assert OWNER not in store.list()

    # It gives its config and its weights to another run.
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "third"))
    assert "train_steps: 200" in output_of(["show", f"--experiment={store.url}"])
    begun = [*_DIGITS, "--trainer.train_steps=3", f"--task.init_checkpoint={store.url}"]
    assert main([*begun, f"--model_dir={here}/begun"]) == 0
    assert "loaded 8 of the model's 8 variables" in capsys.readouterr().err
    written = (here / "begun" / "config.yaml").read_text(encoding="utf-8")
    assert f"init_checkpoint: {store.url}" in written


@pytest.mark.slow
def test_permanent_store_failure_is_one_error_that_names_the_local_files(
    undisturbed, store, proxy, capfd
):
    arguments = [*_DIGITS, f"--model_dir={store.url}"]
    with meanwhile(lambda: newest_step(store) >= 20, lambda: proxy.fail("down")):
        assert main(arguments) == 1

    err = capfd.readouterr().err
    (last,) = re.findall(r"^runner: .*", err, re.MULTILINE)
    assert last.startswith("runner: --model_dir: cannot ")
    assert store.url in last
    assert "Traceback" not in err
    assert "a-secret-of-the-tests" not in err
    match = re.search(r"all files of the run are in (.*)", err)
    assert (Path(match[1]) / "checkpoints" / "ckpt-200.index").exists()

    # Back again: the same command continues from the store.
    proxy.mode = "up"
    assert newest_step(store) < 200
    assert main(arguments) == 0
    captured = capfd.readouterr()
    assert json.loads(captured.out)["fingerprint"] == undisturbed["fingerprint"]
    assert newest_step(store) == 200
    assert "a-secret-of-the-tests" not in store.read("run.json").decode()


def test_checkpoint_is_uploaded_in_commit_order_before_the_old_one_is_deleted(store, proxy):
    ckpt = "checkpoints/ckpt"
    with training_scope(store.url) as copy:
        save(copy, 10)
        (copy / "checkpoints" / ".writing-5").mkdir()
        (copy / "checkpoints" / ".writing-5" / "ckpt-5.index").write_text("", encoding="utf-8")
        changes(proxy, store)
        save(copy, 20)

        uploads = changes(proxy, store)
        assert uploads[0] == "PUT metrics.jsonl"
        assert uploads[1:3] == [f"PUT {ckpt}-20.data-00000-of-00001", f"PUT {ckpt}-20.json"]
        assert uploads[3] == f"PUT {ckpt}-20.index"
        assert sorted(uploads[4:6]) == ["PUT checkpoint", "PUT checkpoints/checkpoint"]
        assert uploads[6] == f"DELETE {ckpt}-10.index"
        assert len(uploads) == 9
        # The same step with other weights, as after a rollback.
        save(copy, 20, "another")
        uploads = [change for change in changes(proxy, store) if ckpt in change]
        assert uploads[0] == f"DELETE {ckpt}-20.index"
        assert uploads[-1] == f"PUT {ckpt}-20.index"
    assert [*store.list()] == [
        "checkpoint",
        "checkpoints/checkpoint",
        f"{ckpt}-20.data-00000-of-00001",
        f"{ckpt}-20.index",
        f"{ckpt}-20.json",
        "metrics.jsonl",
    ]


def test_run_is_restored_from_the_store(store):
    with training_scope(store.url) as copy:
        save(copy, 10)
    (copy / "metrics.jsonl").write_text("of a process that was killed", encoding="utf-8")
    store.write("checkpoints/ckpt-20.data-00000-of-00001", b"half a checkpoint")

    with training_scope(store.url) as copy:
        folder = CheckpointFolder(copy / "checkpoints")
        assert folder.committed_steps() == [10]
        assert folder.problem(10) is None
        assert (copy / "metrics.jsonl").read_text(encoding="utf-8") == '{"step": 10}\n'
        assert folder.clear_leftovers() == [20]

    assert not [name for name in store.list() if "-20" in name]


def test_run_has_one_owner(store):
    with (
        training_scope(store.url),
        raises("run-locked", "--model_dir"),
        training_scope(store.url),
    ):
        pass
    # A process that has ended here is replaced, one on another machine is not.
    ended = {"process": 2**22 + 1, "host": socket.gethostname()}
    store.write(OWNER, json.dumps(ended).encode())
    with training_scope(store.url):
        pass
    far = json.dumps({"process": 7, "host": "far"}).encode()
    store.write(OWNER, far)
    with raises("run-locked", "--model_dir") as raised, training_scope(store.url):
        pass
    assert "process 7 on far" in str(raised.value)
    assert f"if it has ended, delete {store.url}/{OWNER}" in str(raised.value)
    assert store.read(OWNER) == far


def test_unwritable_model_dir_is_rejected_before_tensorflow_is_imported(proxy, here, capsys):
    assert main([*_DIGITS, "--model_dir=s3://nobucket/run"]) == 2

    stderr = capsys.readouterr().err
    assert "--model_dir: cannot " in stderr
    assert "s3://nobucket/run" in stderr
    assert "importing tensorflow" not in stderr


def test_cluster_rejects_a_run_directory_in_a_store(url, monkeypatch):
    task = {"type": "worker", "index": 0}
    cluster = {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
    strategy = "--distribution_strategy=multi_worker_mirrored"

    error = error_of([*_DIGITS, strategy, f"--model_dir={url}"])

    assert f"--model_dir: got '{url}', expected a local path" in str(error)
