"""Objects of a real S3 server, and of a server that fails."""

from __future__ import annotations

import sys
import threading

import pytest
from s3fs import S3FileSystem

from orbit_runner.config.resolve import Request, resolve
from orbit_runner.storage.objects import ObjectStore
from orbit_runner.storage.staging import localize
from tests.support.problems import raises
from tests.support.processes import printed_by


def test_objects_are_written_listed_read_and_deleted(store, tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 70_000)
    store.write("a/b.txt", b"hello")
    store.upload(tmp_path / "file", "big")
    # A name with the same prefix is not inside the directory.
    ObjectStore(f"{store.url}-2").write("c", b"")

    assert {name: size for name, (size, _) in store.list().items()} == {"a/b.txt": 5, "big": 70_000}
    assert store.read("a/b.txt") == b"hello"
    store.download({"big": tmp_path / "sub" / "copy"})
    assert (tmp_path / "sub" / "copy").read_bytes() == b"x" * 70_000
    store.delete("big")
    store.delete("big")
    assert [*store.list()] == ["a/b.txt"]
    with raises("missing-file"):
        store.stat("big")
    with raises("missing-file"):
        store.read("big")


def test_only_one_of_many_processes_creates_an_object(store):
    created: list[bytes] = []
    barrier = threading.Barrier(6)

    def create(content: bytes) -> None:
        barrier.wait()
        if store.create("x", content):
            created.append(content)

    threads = [threading.Thread(target=create, args=(b"%d" % number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert created == [store.read("x")]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["busy", "down"])
def test_write_is_retried_during_a_temporary_store_failure(mode, store, proxy):
    store.write("x", b"1")
    proxy.fail(mode)
    threading.Timer(1.0, setattr, (proxy, "mode", "up")).start()

    store.write("x", b"2")

    assert store.read("x") == b"2"


@pytest.mark.slow
def test_unreachable_store_error_names_the_object_and_the_reason(store, proxy):
    store.list()
    proxy.fail("busy")

    with raises("unreachable") as raised:
        store.write("dir/x", b"1")

    assert str(raised.value).startswith(f"cannot write {store.url}/dir/x: ")
    assert "a-secret-of-the-tests" not in str(raised.value)
    assert raised.value.exit_code == 1


def test_missing_credentials_are_reported_immediately(url, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    S3FileSystem.clear_instance_cache()

    with raises("unreachable") as raised:
        ObjectStore(url).write("x", b"")

    S3FileSystem.clear_instance_cache()
    assert raised.value.exit_code == 2


def test_missing_package_error_names_the_pip_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)

    with raises("missing-package", "--model_dir") as raised:
        ObjectStore("s3://bucket/x", "--model_dir")

    assert "pip install 'orbit-runner[cloud]'" in str(raised.value)
    config = resolve(
        Request(experiment="mnist", flags=(("x", "task.train_data.data_dir", "s3://bucket/x"),))
    ).config
    with raises("missing-package", "task.train_data.data_dir"):
        localize(config)


def test_local_paths_do_not_import_fsspec():
    code = (
        "import sys\n"
        "from orbit_runner.cli.main import main\n"
        "main(['show', '--experiment=digits'])\n"
        "sys.exit('fsspec' in sys.modules or 'tensorflow' in sys.modules)\n"
    )

    printed_by(code)
