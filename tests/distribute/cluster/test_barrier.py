"""Addresses at which servers answer, and the barrier at which members meet: real sockets."""

import contextlib
import json
import random
import socket
import threading
import time

import pytest

from orbit_runner.distribute.cluster.addresses import (
    Liveness,
    listening_socket,
    port_problem,
    probe,
)
from orbit_runner.distribute.cluster.barrier import wait_at_barrier
from orbit_runner.distribute.cluster.description import Cluster, ClusterError, Member
from tests.clusters.members import free_ports
from tests.support.problems import raises


def _clusters(count):
    addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(count))
    return [
        Cluster({"worker": addresses}, Member("worker", index, addresses[index]), "a test")
        for index in range(count)
    ]


def _meet(cluster, tell=print, **changes):
    others = [member for member in cluster.trainers() if member != cluster.me]
    wait_at_barrier(cluster, others, tell=tell, **{"purpose": "train", "timeout": 600.0, **changes})


def _all_meet(clusters, *changes):
    errors = [None] * len(clusters)

    def one(number):
        try:
            _meet(clusters[number], **(changes[number] if changes else {}))
        except BaseException as error:
            errors[number] = error

    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(clusters))]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    return errors


@pytest.mark.parametrize("count", [1, 2, 5])
def test_all_members_meet_and_release_their_ports(count):
    clusters = _clusters(count)

    assert _all_meet(clusters) == [None] * count
    for cluster in clusters:
        _, _, port = cluster.me.address.rpartition(":")
        socket.create_server(("127.0.0.1", int(port))).close()


def test_no_member_continues_before_the_last_one_arrives():
    first, second, third = _clusters(3)
    departed = []
    threads = [
        threading.Thread(target=lambda c=c: (_meet(c), departed.append(str(c.me))))
        for c in (first, second)
    ]
    for thread in threads:
        thread.start()
    time.sleep(1.0)
    assert departed == []
    _meet(third)
    for thread in threads:
        thread.join(600)
    assert sorted(departed) == ["worker 0", "worker 1"]


@pytest.mark.slow
def test_missing_member_is_named_while_waiting_and_in_the_error():
    clusters, messages = _clusters(3), list[str]()
    threads = [threading.Thread(target=lambda: _all_meet(clusters[1:2], {"timeout": 3.0}))]
    threads[0].start()
    begun = time.monotonic()
    with raises("member-lost") as caught:
        _meet(clusters[0], messages.append, timeout=3.0)

    assert time.monotonic() - begun < 60
    assert caught.value.exit_code == 138
    assert messages[-1].startswith("waiting for worker 2 (127.0.0.1:")
    threads[0].join()


def test_members_with_different_purposes_are_rejected():
    errors = _all_meet(_clusters(2), {"purpose": "train a"}, {"purpose": "train b"})

    assert [type(error) for error in errors] == [ClusterError, ClusterError]
    assert "train a" in str(errors[0])
    assert "train b" in str(errors[0])


def test_members_with_different_clusters_are_rejected():
    cluster, other = _clusters(2)
    third = (*other.jobs["worker"], "127.0.0.1:9")
    larger = Cluster({"worker": third}, other.me, "a test")

    errors = _all_meet([cluster, larger], {}, {"timeout": 2.0})

    assert isinstance(errors[0], ClusterError)
    assert "worker 1 has a different cluster" in str(errors[0])


def test_port_in_use_is_reported():
    (cluster,) = _clusters(1)
    _, _, port = cluster.me.address.rpartition(":")
    with socket.create_server(("", int(port))), raises("bad-cluster"):
        _meet(cluster)


def test_unrelated_connections_to_the_port_are_ignored():
    clusters = _clusters(2)
    thread = threading.Thread(target=_meet, args=(clusters[0],))
    thread.start()
    address = ("127.0.0.1", int(clusters[0].me.address.rpartition(":")[2]))
    for text in (b"GET / HTTP/1.1\r\n\r\n", b"[1]\n", json.dumps({"from": 3}).encode() + b"\n"):
        end = time.monotonic() + 600
        while True:
            try:
                with socket.create_connection(address, 600) as talk:
                    talk.sendall(text)
                break
            except OSError:
                assert time.monotonic() < end
    _meet(clusters[1])
    thread.join(600)
    assert not thread.is_alive()


# Whether a server answers at an address, and whether a port is in use.

NOWHERE = "nowhere.invalid"  # RFC 2606 reserves the domain, so nobody can register it.


@pytest.fixture
def free():
    """A port on which nothing listened a moment ago."""
    while True:
        # Below the range from which the system assigns ports to other processes.
        port = random.SystemRandom().randrange(10_000, 30_000)
        with contextlib.suppress(OSError), listening_socket(port):
            return port


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
@pytest.mark.parametrize("own", ["localhost", "any"])
# The servers of TensorFlow set this, so two of them could listen without an error.
@pytest.mark.parametrize("reuse", [False, True])
def test_port_in_use_by_another_process_is_reported(family, own, reuse):
    host = {"any": "", "localhost": "127.0.0.1" if family == socket.AF_INET else "::1"}[own]
    with socket.create_server((host, 0), family=family, reuse_port=reuse) as other:
        port = other.getsockname()[1]

        problem = port_problem(f"somewhere:{port}")

    assert problem == f"port {port} of somewhere:{port} is in use by another process"


def test_checking_a_free_port_leaves_it_free(free):
    assert port_problem(f"localhost:{free}") == ""
    assert port_problem(f"localhost:{free}") == ""


def test_probe_finds_no_server_at_a_free_port_and_an_unknown_host(free):
    answers = [probe(there) for there in (f"127.0.0.1:{free}", f"{NOWHERE}:1", "a..b:1")]

    assert answers == [Liveness.GONE] * 3
