"""Objects of a real S3 server, and of a server that fails."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orbit_runner.storage.objects import RETRY_VARIABLE, ObjectStore, StorageError, open_store
from orbit_runner.storage.paths import PathError
from tests.support.problems import raises

from .conftest import Proxy


def test_objects_are_written_listed_read_and_deleted(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 70_000)
    store.write("a/b.txt", b"hello")
    store.upload(tmp_path / "file", "big")
    # A name with the same prefix is not inside the directory.
    ObjectStore(f"{store.url}-2").write("c", b"")

    assert {name: info.size for name, info in store.list().items()} == {"a/b.txt": 5, "big": 70_000}
    assert store.read("a/b.txt") == b"hello"
    store.download("big", tmp_path / "sub" / "copy")
    assert (tmp_path / "sub" / "copy").read_bytes() == b"x" * 70_000
    store.delete("big")
    store.delete("big")
    assert [*store.list()] == ["a/b.txt"]
    assert store.info("big") is None
    with pytest.raises(FileNotFoundError):
        store.read("big")


@pytest.mark.parametrize("scheme", ["s3", "memory"])
def test_a_conditional_write_succeeds_only_on_the_version_it_names(scheme: str, url: str) -> None:
    store = ObjectStore(url.replace("s3://", f"{scheme}://"))

    first = store.write_if("x", b"1", None)
    assert first is not None
    assert store.write_if("x", b"2", None) is None
    second = store.write_if("x", b"2", first)
    assert second is not None
    assert store.write_if("x", b"3", first) is None
    assert store.write_if("gone", b"3", first) is None
    assert store.read("x") == b"2"


def test_only_one_of_many_concurrent_conditional_writes_succeeds(store: ObjectStore) -> None:
    written: list[str | None] = []
    barrier = threading.Barrier(6)

    def write(number: int) -> None:
        barrier.wait()
        written.append(store.write_if("x", b"%d" % number, None))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(one is not None for one in written) == 1


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["busy", "down"])
def test_write_is_retried_during_a_temporary_store_failure(
    mode: str, store: ObjectStore, proxy: Proxy
) -> None:
    store.write("x", b"1")
    proxy.fail(mode)
    threading.Timer(1.0, setattr, (proxy, "mode", "up")).start()

    store.write("x", b"2")

    assert store.read("x") == b"2"


@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", ["busy", "down"])
def test_unreachable_store_error_names_the_object_and_the_reason(
    mode: str, store: ObjectStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RETRY_VARIABLE, "1.5")
    store.list()
    proxy.fail(mode)

    with pytest.raises(StorageError) as raised:
        store.write("dir/x", b"1")

    told = str(raised.value)
    assert told.startswith(f"cannot write {store.url}/dir/x: ")
    assert "(tried for " in told
    assert "a-secret-of-the-tests" not in told
    assert raised.value.exit_code == 1
    assert not raised.value.permanent


def test_missing_bucket_is_reported_immediately(proxy: Proxy) -> None:
    with raises("unreachable") as one:
        ObjectStore("s3://no-bucket/x").list()

    assert one.value.permanent


def test_missing_credentials_are_reported_immediately(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    with raises("unreachable") as raised:
        ObjectStore(url).write("x", b"")

    assert raised.value.permanent


def test_missing_package_error_names_the_pip_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)

    with pytest.raises(PathError) as raised:
        open_store("s3://bucket/x", "--model_dir")

    told = str(raised.value)
    assert told.startswith("--model_dir: s3:// requires the package s3fs")
    assert "pip install 'orbit-runner[cloud]'" in told


def test_local_paths_do_not_import_fsspec() -> None:
    code = (
        "import sys\n"
        "from orbit_runner.cli.main import main\n"
        "main(['show', '--experiment=digits'])\n"
        "sys.exit('fsspec' in sys.modules or 'tensorflow' in sys.modules)\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)

    assert done.returncode == 0, done.stderr.decode()
