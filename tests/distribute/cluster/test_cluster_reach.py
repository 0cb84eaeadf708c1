"""Unknown hosts and ports in use are reported before anything starts."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from orbit_runner.distribute.cluster.addresses import (
    find_unknown_hosts,
    find_unreachable_addresses,
    listening_socket,
    port_problem,
)
from orbit_runner.distribute.cluster.description import Cluster, Member
from orbit_runner.distribute.cluster.resolver import reach_problems

NOWHERE = "nowhere.invalid"  # RFC 2606 reserves the domain, so nobody can register it.


@pytest.fixture
def free() -> int:
    """A port on which nothing listened a moment ago."""
    while True:
        # Below the range from which the system assigns ports to other processes.
        port = random.SystemRandom().randrange(10_000, 30_000)
        with contextlib.suppress(OSError), listening_socket(port):
            return port


class SlowNames:
    """A name server that does not answer before `answer` is called."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._answering = threading.Event()

    def look_up(self, host: str, *_: Any, **__: Any) -> list[Any]:
        self.asked.append(host)
        self._answering.wait(30)
        return []

    def answer(self) -> None:
        """Answers, and waits until all lookups have ended."""
        self._answering.set()
        for thread in threading.enumerate():
            if thread.name.startswith("lookup"):
                thread.join(10)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowNames]:
    """Makes lookups slow during the test."""
    names = SlowNames()
    monkeypatch.setattr(socket, "getaddrinfo", names.look_up)
    yield names
    names.answer()


def _cluster(role: str, index: int, port: int = 1, **hosts: list[str]) -> Cluster:
    jobs = {name: tuple(f"{host}:{port}" for host in there) for name, there in hosts.items()}
    there = jobs.get(role, ())
    return Cluster(jobs, Member(role, index, there[index] if there else ""), "here")


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
@pytest.mark.parametrize("own", ["localhost", "any"])
def test_port_in_use_by_another_process_is_reported(family: int, own: str) -> None:
    host = {"any": "", "localhost": "127.0.0.1" if family == socket.AF_INET else "::1"}[own]
    with socket.create_server((host, 0), family=family) as other:
        port = other.getsockname()[1]

        said = port_problem(f"somewhere:{port}")

    assert said == f"port {port} of somewhere:{port} is in use by another process"


def test_port_opened_with_reuse_port_counts_as_in_use() -> None:
    # The servers of TensorFlow set this, so two of them could listen without an error.
    with socket.create_server(("", 0), reuse_port=True) as other:
        assert "is in use" in port_problem(f"localhost:{other.getsockname()[1]}")


def test_checking_a_free_port_leaves_it_free(free: int) -> None:
    assert port_problem(f"localhost:{free}") == ""
    assert port_problem(f"localhost:{free}") == ""


def test_unknown_and_invalid_hosts_are_found() -> None:
    addresses = ["localhost:1", "127.0.0.1:1", "[::1]:1", f"{NOWHERE}:1", f"{NOWHERE}:2", "a..b:1"]

    found = find_unknown_hosts(addresses, 20)

    assert [*found] == [NOWHERE, "a..b"]
    assert found["a..b"] == "not a valid host name"
    assert all(found.values())


def test_empty_address_list_has_no_unknown_hosts() -> None:
    assert find_unknown_hosts([], 20) == {}


def test_slow_name_server_does_not_delay_the_check(slow: SlowNames) -> None:
    begun = time.monotonic()

    found = find_unknown_hosts([f"h{n}:1" for n in range(100)], 0.2)

    assert found == {}
    assert time.monotonic() - begun < 15
    assert 1 <= len(slow.asked) <= 8


def test_no_more_hosts_are_looked_up_after_the_timeout(slow: SlowNames) -> None:
    find_unknown_hosts([f"h{n}:1" for n in range(100)], 0.1)
    asked = len(slow.asked)

    slow.answer()

    assert len(slow.asked) == asked


def test_unknown_host_is_reported_while_other_lookups_are_slow(
    monkeypatch: pytest.MonkeyPatch, slow: SlowNames
) -> None:
    waiting = socket.getaddrinfo

    def look_up(host: str, *rest: Any, **more: Any) -> Any:
        if host == NOWHERE:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return waiting(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    found = find_unknown_hosts([f"{NOWHERE}:1", "slow:1"], 0.2)
    assert found == {NOWHERE: "Name or service not known"}


def test_unknown_host_and_port_in_use_are_both_reported(free: int) -> None:
    with listening_socket(free):
        found = [*reach_problems(_cluster("worker", 0, free, worker=["localhost", "a..b"]))]

    assert found == [
        "here: worker 1: cannot resolve the host 'a..b': not a valid host name",
        f"here: worker 0: port {free} of localhost:{free} is in use by another process",
    ]


@pytest.mark.parametrize(
    ("role", "hosts", "asked"),
    [
        ("worker", {"worker": ["me", "b"], "evaluator": ["e"]}, {"b"}),
        ("chief", {"chief": ["me"], "worker": ["b", "b"], "ps": ["c"]}, {"b", "c"}),
        ("evaluator", {"worker": ["a", "b"], "evaluator": ["me"]}, set()),
        ("evaluator", {"worker": ["a", "b"]}, set()),
    ],
)
def test_only_hosts_that_a_member_connects_to_are_looked_up(
    role: str, hosts: dict[str, list[str]], asked: set[str], free: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    found: list[str] = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_, **__: found.append(host))

    assert [*reach_problems(_cluster(role, 0, free, **hosts))] == []

    assert sorted(found) == sorted(asked)


def test_hosts_named_before_they_exist_are_not_looked_up(free: int) -> None:
    me = Member("worker", 0, f"localhost:{free}")
    jobs = {"worker": (me.address, f"{NOWHERE}:1")}
    early = Cluster(jobs, me, "here", hosts_resolve_late=True)

    assert [*reach_problems(early)] == []
    with listening_socket(free):
        assert len([*reach_problems(early)]) == 1


def test_many_unknown_hosts_are_summarized_in_four_lines(
    free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(host: str, *_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    hosts = ["localhost", *(f"h{n}" for n in range(100))]

    found = [*reach_problems(_cluster("worker", 0, free, worker=hosts))]

    assert len(found) == 4
    assert found[-1] == "here: … and 97 more hosts cannot be resolved"


def test_addresses_without_a_listener_are_unreachable(free: int) -> None:
    with listening_socket(0) as other:
        there = f"127.0.0.1:{other.getsockname()[1]}"
        found = find_unreachable_addresses([there, f"127.0.0.1:{free}", f"{NOWHERE}:1"], 20)

    assert [*found] == [f"127.0.0.1:{free}", f"{NOWHERE}:1"]
    assert found[f"127.0.0.1:{free}"] == "nothing is listening there"


def test_address_that_is_slow_to_resolve_is_not_reported(slow: SlowNames) -> None:
    begun = time.monotonic()

    assert find_unreachable_addresses(["far-away:1"], 0.2) == {}
    assert time.monotonic() - begun < 15
