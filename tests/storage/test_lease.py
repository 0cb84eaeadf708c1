"""The lock of a run in an object store."""

from __future__ import annotations

import json
import threading

import pytest

from orbit_runner.errors import RunnerError
from orbit_runner.storage.lease import NAME, Lease
from orbit_runner.storage.objects import RETRY_VARIABLE, ObjectStore
from tests.support.launches import wait_for
from tests.support.problems import raises

from .conftest import Proxy

_ELSEWHERE = {"owner": "f00", "process": 7, "host": "far", "machine": "another", "started": "1"}


def test_live_process_on_this_machine_keeps_its_lock(store: ObjectStore) -> None:
    first = Lease(store)
    first.acquire()

    with pytest.raises(RunnerError, match=f"another process is training in {store.url}"):
        Lease(store).acquire()

    first.release()
    second = Lease(store)
    second.acquire()
    assert second.previous == first.owner
    second.release()


@pytest.mark.parametrize("change", [{"started": "12"}, {"process": "x"}], ids=["dead", "damaged"])
def test_lock_of_no_live_process_on_this_machine_is_taken_over_immediately(
    store: ObjectStore, change: dict[str, str]
) -> None:
    lease = Lease(store)
    lease.acquire()
    lease._stop.set()
    record = json.loads(store.read(NAME))
    store.write(NAME, json.dumps({**record, **change}).encode())

    other = Lease(store, seconds=1000.0)
    other.acquire()

    assert other.is_held()
    other.release()


def test_lock_of_another_machine_is_taken_over_if_not_renewed(
    store: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    store.write(NAME, json.dumps(_ELSEWHERE).encode())

    lease = Lease(store, seconds=1.0)
    lease.acquire()

    assert "is locked by process 7 on far" in capsys.readouterr().err
    assert json.loads(store.read(NAME))["owner"] == lease.owner
    assert lease.previous == "f00"
    lease.release()


@pytest.mark.slow
def test_lock_of_another_machine_is_respected_while_it_is_renewed(store: ObjectStore) -> None:
    stop = threading.Event()

    def renew() -> None:
        count = 0
        while not stop.is_set():
            count += 1
            store.write(NAME, json.dumps({**_ELSEWHERE, "count": count}).encode())
            stop.wait(0.2)

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        with raises("run-locked", "--model_dir"):
            Lease(store, seconds=30.0).acquire()
    finally:
        stop.set()
        thread.join()


def test_process_is_notified_when_its_lock_is_taken_over(store: ObjectStore) -> None:
    told = threading.Event()
    lease = Lease(store, seconds=2.0, renewal=0.1, on_lost=told.set)
    lease.acquire()

    store.write(NAME, json.dumps(_ELSEWHERE).encode())

    assert told.wait(10.0)
    assert not lease.is_held()
    assert "process 7 on far" in lease.takeover_message()
    lease.release()
    assert json.loads(store.read(NAME))["owner"] == "f00"


def test_lock_that_cannot_be_renewed_does_not_count_as_held(
    store: ObjectStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RETRY_VARIABLE, "0.1")
    lease = Lease(store, seconds=1.0, renewal=0.1)
    lease.acquire()
    assert lease.is_held()

    proxy.fail("down")
    wait_for(lambda: not lease.is_held())
    proxy.mode = "up"
    wait_for(lease.is_held)

    lease.release()
    assert "released" in json.loads(store.read(NAME))
