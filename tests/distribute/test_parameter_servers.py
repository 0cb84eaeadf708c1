"""Liveness of servers, with real sockets, and the files that tell of the end of a run."""

import contextlib
import shutil
import socket
import threading
import time

import pytest

from orbit_runner.distribute.cluster.addresses import Liveness, probe
from orbit_runner.distribute.cluster.barrier import wait_for_servers
from orbit_runner.distribute.cluster.description import Member
from orbit_runner.distribute.failure_detection import ServerWatch
from orbit_runner.distribute.parameter_servers import RunEnd
from tests.support.launches import wait_for
from tests.support.problems import raises


class Stage:
    """A server that tests can make hang or close."""

    def __init__(self, port=0):
        self._socket = socket.create_server(("127.0.0.1", port))
        self._socket.settimeout(0.05)
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.answers, self._open, self.hangs = True, True, threading.Event()
        self.heard = b""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        while self._open:
            if not self.answers:
                self.hangs.set()
                time.sleep(0.02)
                continue
            with contextlib.suppress(OSError):
                talk, _ = self._socket.accept()
                with talk:
                    self.heard = talk.recv(100)
                    talk.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))

    def close(self):
        self._open = False
        self._thread.join()
        self._socket.close()


@pytest.fixture
def stages():
    all_stages = [Stage() for _ in range(3)]
    yield all_stages
    for stage in all_stages:
        stage.close()


@pytest.fixture
def members(stages):
    roles = [("worker", 0), ("worker", 1), ("ps", 0)]
    return [
        Member(role, index, stage.address)
        for (role, index), stage in zip(roles, stages, strict=True)
    ]


def test_liveness_check_distinguishes_live_silent_and_closed_servers(stages):
    assert probe(stages[0].address) is Liveness.ALIVE
    assert stages[0].heard.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    stages[0].answers = False
    stages[0].hangs.wait()  # It may be waiting for a connection.
    assert probe(stages[0].address, 0.3) is Liveness.SILENT
    stages[1].close()
    assert probe(stages[1].address) is Liveness.GONE


def test_waiting_succeeds_when_a_server_starts_late(stages, members):
    stages[1].answers = False
    threading.Timer(0.5, lambda: setattr(stages[1], "answers", True)).start()
    wait_for_servers(members, timeout=600.0, tell=lambda text: None)


@pytest.mark.slow
def test_error_names_servers_that_do_not_respond(stages, members):
    stages[2].close()
    messages = []
    with raises("member-lost"):
        wait_for_servers(members, timeout=2.5, tell=messages.append)
    assert messages == [f"waiting for ps 0 ({members[2].address})"]


@pytest.fixture
def watch(members):
    reasons = []
    watch_of_servers = ServerWatch(members, silence=2.0, give_up=reasons.append)
    yield watch_of_servers, reasons
    watch_of_servers.stop()


@pytest.mark.slow
def test_losing_one_worker_is_tolerated_but_losing_all_is_not(watch, stages):
    stages[0].close()
    time.sleep(1.5)
    assert watch[0].failure_reason() == ""
    stages[1].close()
    wait_for(lambda: "no worker is left" in watch[0].failure_reason())
    wait_for(lambda: watch[1])


def test_losing_a_parameter_server_is_not_tolerated(watch, stages, members):
    stages[2].close()
    wait_for(watch[0].failure_reason)
    assert watch[0].failure_reason() == f"ps 0 ({members[2].address}): nothing is listening"


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 2])
def test_hanging_server_is_reported_as_lost(which, watch, stages, members):
    stages[which].answers = False
    wait_for(watch[0].failure_reason)
    reason = f"{members[which]} ({members[which].address}): no response"
    assert watch[0].failure_reason() == reason
    wait_for(lambda: watch[1])
    assert watch[1] == [reason]


@pytest.mark.slow
def test_stopped_watch_does_not_give_up(watch, stages):
    watch[0].stop()
    for stage in stages:
        stage.close()
    time.sleep(1.5)
    assert not watch[1]


@pytest.mark.parametrize("code", [0, 3, 143])
def test_servers_get_the_exit_code_of_the_chief(code, tmp_path):
    host = RunEnd(tmp_path)
    host.begin()
    guests = [RunEnd(tmp_path, Member(role, 0)) for role in ("worker", "ps")]
    assert [guest.exit_code() for guest in guests] == [None, None]
    host.tell_servers(code)
    assert [guest.exit_code() for guest in guests] == [code, code]


def test_note_of_an_earlier_run_is_ignored(tmp_path):
    host = RunEnd(tmp_path)
    host.begin()
    host.tell_servers(0)
    guest = RunEnd(tmp_path, Member("worker", 1))
    assert guest.exit_code() is None
    host.begin()
    assert guest.exit_code() is None
    host.tell_servers(0)
    assert guest.exit_code() == 0


def test_removed_run_directory_is_not_created_again(tmp_path):
    host = RunEnd(tmp_path / "run")
    host.begin()
    guest = RunEnd(tmp_path / "run", Member("worker", 0))
    shutil.rmtree(tmp_path / "run")

    host.tell_servers(1)
    guest.tell_chief()
    assert not (tmp_path / "run").exists()


def test_chief_sees_which_servers_announced_their_exit(tmp_path):
    host = RunEnd(tmp_path)
    host.begin()
    assert host.leaving_members() == []
    RunEnd(tmp_path, Member("worker", 12)).tell_chief()
    RunEnd(tmp_path, Member("ps", 0)).tell_chief()
    assert host.leaving_members() == ["ps 0", "worker 12"]


def test_restarted_server_is_no_longer_leaving(tmp_path):
    host = RunEnd(tmp_path)
    RunEnd(tmp_path, Member("worker", 1)).tell_chief()
    RunEnd(tmp_path, Member("worker", 0)).tell_chief()
    RunEnd(tmp_path, Member("worker", 1))
    assert host.leaving_members() == ["worker 0"]
    host.begin()
    assert host.leaving_members() == []
