"""Runs whose directory is in an object store: processes that are killed, rejected and resumed."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.cli.main import main
from orbit_runner.run_directory.remote_copy import committed_groups, groups_of
from orbit_runner.storage.lease import Lease
from orbit_runner.storage.objects import RETRY_VARIABLE, ObjectStore
from orbit_runner.storage.paths import local_run_directory
from tests.support import warm_runner

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
_LEASE_DEFAULTS = Lease.__init__.__kwdefaults__


def newest_step(store: ObjectStore) -> int:
    groups = committed_groups(groups_of(store.list()))
    return max((group.step for group in groups if group.series == "checkpoints/ckpt"), default=0)


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
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of the same run on a local disk."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main([*_DIGITS, f"--model_dir={folder}"]) == 0
    return json.loads(out.getvalue())


@pytest.mark.slow
def test_killed_run_resumes_exactly_on_another_machine(
    undisturbed: dict[str, Any],
    store: ObjectStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [*_DIGITS, f"--model_dir={store.url}"]
    with (tmp_path / "err").open("w") as err:
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

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    assert main(arguments) == 0

    told = capsys.readouterr()
    found = json.loads(told.out)
    assert f"restored step {left_at} from {tmp_path}/another/" in told.err
    assert found["fingerprint"] == undisturbed["fingerprint"]
    assert found["metrics"]["accuracy"] == undisturbed["metrics"]["accuracy"]
    assert found["best"] == undisturbed["best"]
    assert found["model_dir"] == store.url
    steps = [json.loads(line)["step"] for line in store.read("metrics.jsonl").splitlines()]
    assert steps == sorted(steps)
    assert {path.name for path in tmp_path.iterdir()} == {"err", "cache", "another"}


@pytest.mark.slow
def test_commands_read_a_run_in_a_store(
    store: ObjectStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [*_DIGITS, "--trainer.train_steps=60", f"--model_dir={store.url}"]
    assert main(arguments) == 0
    fingerprint = json.loads(capsys.readouterr().out)["fingerprint"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))

    def answer(*words: str, code: int = 0) -> str:
        assert main(words) == code
        return capsys.readouterr().out

    assert "trainer.train_steps" in answer("show", f"--experiment={store.url}", "--diff=digits")
    assert "train_steps: 60" in answer("show", f"--experiment={store.url}")
    assert f"{store.url}: intact, 4 checkpoints read" in answer("verify", store.url)
    one = f"{store.url}/checkpoints/ckpt-40"
    assert f"{one}: intact, 1 checkpoint read" in answer("verify", one)
    record = json.loads(answer("export", store.url, "--json"))
    assert record["fingerprint"] == fingerprint
    assert record["path"] == f"{store.url}/export/60"
    assert "export/60/saved_model.pb" in store.list()
    answer("export", store.url, code=2)
    assert answer("--mode=eval", *arguments).count(fingerprint) == 1
    assert "run.eval.json" in store.list()
    results = json.loads(answer("evaluate", store.url, "--checkpoint=40", "--json"))
    written = json.loads(store.read(results["file"].removeprefix(f"{store.url}/")))
    assert results["step"] == 40
    assert written["metrics"] == results["metrics"]
    assert not [*(tmp_path / "another" / "orbit_runner" / "evaluations").iterdir()]

    begun = [*_DIGITS, "--trainer.train_steps=3", f"--task.init_checkpoint={store.url}"]
    assert main([*begun, f"--model_dir={tmp_path}/begun"]) == 0
    assert "loaded 8 of the model's 8 variables" in capsys.readouterr().err
    written = (tmp_path / "begun" / "config.yaml").read_text(encoding="utf-8")
    assert f"init_checkpoint: {store.url}" in written

    store.write("checkpoints/ckpt-40.data-00000-of-00001", b"damaged")
    assert "ckpt-40.data-00000-of-00001 has 7 bytes" in answer("verify", store.url, code=4)


@pytest.mark.slow
def test_temporary_store_failure_does_not_end_a_run(
    undisturbed: dict[str, Any],
    store: ObjectStore,
    proxy: Proxy,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail_for_a_while() -> None:
        proxy.fail("busy")
        time.sleep(2.0)
        proxy.mode = "up"

    with meanwhile(lambda: newest_step(store) >= 20, fail_for_a_while):
        assert main([*_DIGITS, f"--model_dir={store.url}"]) == 0

    assert json.loads(capsys.readouterr().out)["fingerprint"] == undisturbed["fingerprint"]
    assert newest_step(store) == 200
    assert json.loads(store.read("run.json"))["attempts"][-1]["outcome"] == "done"
    assert "released" in json.loads(store.read(".lock"))


@pytest.mark.slow
def test_permanent_store_failure_is_one_error_that_names_the_working_copy(
    undisturbed: dict[str, Any],
    store: ObjectStore,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(RETRY_VARIABLE, "2")
    arguments = [*_DIGITS, f"--model_dir={store.url}"]
    with meanwhile(lambda: newest_step(store) >= 20, lambda: proxy.fail("down")):
        assert main(arguments) == 1

    err = capfd.readouterr().err
    (last,) = re.findall(r"^runner: .*", err, re.MULTILINE)
    assert last.startswith("runner: --model_dir: cannot ")
    assert store.url in last
    assert "Traceback" not in err
    assert "a-secret-of-the-tests" not in err
    copy = local_run_directory(store.url)
    assert f"all files of the run are in its working copy, {copy}" in err
    assert (copy / "checkpoints" / "ckpt-200.index").exists()

    # Back again: the same command uploads what is missing, and trains nothing.
    proxy.mode = "up"
    assert newest_step(store) < 200
    assert main(arguments) == 0
    told = capfd.readouterr()
    assert "the run is finished: step 200 of 200" in told.err
    assert json.loads(told.out)["fingerprint"] == undisturbed["fingerprint"]
    assert newest_step(store) == 200
    assert "a-secret-of-the-tests" not in store.read("run.json").decode()


@pytest.mark.slow
def test_run_taken_over_by_another_process_stops_uploading(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Lease.__init__, "__kwdefaults__", {**_LEASE_DEFAULTS, "renewal": 0.2})
    other = json.dumps({"owner": "f00", "process": 7, "host": "far", "machine": "another"})

    def take_over() -> None:
        store.write(".lock", other.encode())

    arguments = [*_DIGITS, "--trainer.train_steps=100000", f"--model_dir={store.url}"]
    with meanwhile(lambda: newest_step(store) >= 20, take_over):
        assert main(arguments) == 2

    told = capsys.readouterr().err
    assert f"another process has taken over {store.url}" in told
    assert "process 7 on far" in told
    assert store.read(".lock").decode() == other


def test_unwritable_model_dir_is_rejected_before_tensorflow_is_imported(
    proxy: Proxy, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main([*_DIGITS, "--model_dir=s3://nobucket/run"]) == 2

    told = capsys.readouterr().err
    assert "--model_dir: cannot " in told
    assert "s3://nobucket/run" in told
    assert "importing tensorflow" not in told


def test_cluster_rejects_a_run_directory_in_a_store(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = {"type": "worker", "index": 0}
    cluster = {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
    strategy = "--distribution_strategy=multi_worker_mirrored"

    assert main([*_DIGITS, strategy, f"--model_dir={url}"]) == 2

    assert f"--model_dir: got '{url}', expected a local path" in capsys.readouterr().err
