"""Launchers of several machines, here as processes of one."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from typing import Any

import pytest

from orbit_runner.launch.ports import free_ports
from tests.runtime.launch.launches import Launch, alive, wait_for

Start = Callable[..., Launch]
WORKERS = ("worker 0", "worker 1", "worker 2")


@pytest.fixture
def node(start: Start) -> Callable[..., Launch]:
    """Starts the launcher of one machine; two workers on machine 0, one on the others."""
    address = f"127.0.0.1:{free_ports(1)[0]}"

    def run(rank: int, plan: dict[str, list[str]], nodes: int = 2, **other: Any) -> Launch:
        rendezvous = {"address": address, "node": rank, "nodes": nodes, "timeout": 600.0}
        rendezvous |= other.pop("rendezvous", {})
        counts = other.pop("counts", {"worker": 1 if rank else 2})
        return start(plan, counts=counts, rendezvous=rendezvous, **other)

    return run


def all_workers(**lives: list[str]) -> dict[str, list[str]]:
    return {key: ["exit(0)"] for key in WORKERS} | {
        k.replace("_", " "): v for k, v in lives.items()
    }


def cluster_of(launch: Launch, name: str) -> list[dict[str, Any]]:
    return [life["tf_config"]["cluster"] for life in launch.lives(name)]


def test_machines_agree_on_one_cluster_whoever_comes_first(node: Callable[..., Launch]) -> None:
    late = node(1, all_workers())
    assert late.note() == "waiting up to 600 s for node 0"
    first = node(0, all_workers())
    assert (first.end(), late.end()) == (0, 0)
    (cluster,) = cluster_of(first, "worker 0")
    assert len(set(cluster["worker"])) == 3
    assert cluster_of(late, "worker 2") == [cluster]
    assert {line.split(" │")[0].strip() for line in late.err.splitlines()} <= {"launcher"}


def test_a_loss_on_one_machine_restarts_all(node: Callable[..., Launch]) -> None:
    lives = ["serve()", "time.sleep(0.5); exit(0)"]
    plan = all_workers(worker_0=["notice('worker 2')", lives[1]], worker_1=lives, worker_2=lives)
    pair = [node(rank, plan, settle=1.0, grace=0.5) for rank in (0, 1)]
    for name in WORKERS:
        pair[0].pid(name)
    os.kill(pair[0].pid("worker 2"), signal.SIGKILL)
    assert [launch.end() for launch in pair] == [0, 0]
    clusters = [cluster_of(pair[0], name) for name in WORKERS]
    assert clusters[0] == clusters[1] == clusters[2]
    first, second = clusters[0]
    assert not set(first["worker"]) & set(second["worker"])
    told = "node 1: worker 2 was killed by SIGKILL; starting all again from the last checkpoint"
    assert f"{told} (1 of 2)" in pair[0].notes
    assert (pair[0].folder / "logs" / "attempt-2" / "worker-2.log").exists()


def test_a_failure_on_one_machine_is_the_end_of_all(node: Callable[..., Launch]) -> None:
    plan = all_workers(
        worker_0=["serve()"], worker_1=["serve()"], worker_2=["time.sleep(0.5); exit(3)"]
    )
    pair = [node(rank, plan, grace=1.0) for rank in (0, 1)]
    assert [launch.end() for launch in pair] == [3, 3]
    assert "node 1: worker 2 ended with exit code 3; giving up" in pair[0].notes
    assert not any(alive(pid) for pid in pair[0].pids())


def test_a_machine_that_gives_up_is_not_waited_for(node: Callable[..., Launch]) -> None:
    plan = all_workers(worker_0=["serve()"], worker_1=["serve()"], worker_2=["die(9)"])
    zero, one = (node(rank, plan, settle=0.3, grace=0.3, restarts=2 - 2 * rank) for rank in (0, 1))
    assert (zero.end(15), one.end(15)) == (137, 137)
    assert zero.notes[-1] == "node 1: worker 2 was killed by SIGKILL"


def test_a_signal_on_one_machine_makes_all_save(node: Callable[..., Launch]) -> None:
    plan = {key: ["save_when_asked(0.5)"] for key in WORKERS}
    pair = [node(rank, plan) for rank in (0, 1)]
    pair[0].waits(*WORKERS)
    pair[1].process.send_signal(signal.SIGTERM)
    assert [launch.end() for launch in pair] == [143, 143]
    assert (pair[0].err + pair[1].err).count("saved, told 1 times") == 3


def test_a_launcher_that_is_killed_and_started_again(node: Callable[..., Launch]) -> None:
    lives = ["serve()", "time.sleep(1); exit(0)"]
    plan = dict.fromkeys(WORKERS, lives)
    zero, one = (node(rank, plan, settle=0.5, grace=0.5) for rank in (0, 1))
    for name in WORKERS:
        zero.pid(name)
    one.process.kill()
    one = node(1, plan)
    assert (zero.end(), one.end()) == (0, 0)
    assert [len(zero.lives(name)) for name in WORKERS] == [2, 2, 2]


def test_the_launcher_of_machine_0_too(node: Callable[..., Launch]) -> None:
    plan = {key: ["serve()", "time.sleep(1); exit(0)"] for key in WORKERS}
    zero, one = (node(rank, plan, settle=0.5, grace=0.5) for rank in (0, 1))
    for name in WORKERS:
        zero.pid(name)
    zero.process.kill()
    wait_for(lambda: zero.process.poll() is not None)
    zero = node(0, plan)
    assert (zero.end(), one.end()) == (0, 0)
    assert any(note.startswith("the launcher of node 0 is gone") for note in one.notes)


def test_who_does_not_come_is_named(node: Callable[..., Launch]) -> None:
    launch = node(0, all_workers(), nodes=3, rendezvous={"timeout": 3.0})
    assert launch.end() == 138
    assert launch.notes[0] == "waiting up to 3 s for node 1, node 2"
    assert launch.notes[1].endswith("node 1, node 2 did not come")


def test_waiting_ends_with_a_signal(node: Callable[..., Launch]) -> None:
    launch = node(0, all_workers())
    launch.note()
    launch.process.send_signal(signal.SIGINT)
    assert launch.end() == 130


def test_training_is_done_when_it_is_done_everywhere(node: Callable[..., Launch]) -> None:
    # The last one is lost when those of machine 0 have left already.
    plan = all_workers(worker_2=["time.sleep(1); die(9)", "exit(0)"])
    pair = [node(rank, plan, settle=0.5) for rank in (0, 1)]
    assert [launch.end() for launch in pair] == [0, 0]
    assert [len(pair[0].lives(name)) for name in WORKERS] == [2, 2, 2]


def test_servers_on_another_machine_stay_until_the_chief_is_done(
    node: Callable[..., Launch],
) -> None:
    plan = {
        "chief 0": [
            "wait_lives(1, 'ps 0'); time.sleep(0.5); say('served: ' + state('ps 0')); exit(0)"
        ],
        "worker 0": ["serve()"],
        "ps 0": ["serve()"],
    }
    other = {"strategy": "parameter_server"}
    pair = [
        node(0, plan, counts={"chief": 1, "worker": 1}, **other),
        node(1, plan, counts={"ps": 1}, **other),
    ]
    assert [launch.end() for launch in pair] == [0, 0]
    assert "served: S" in pair[0].err
    assert not any(alive(pid) for pid in pair[0].pids())


def test_two_launchers_with_one_number(node: Callable[..., Launch]) -> None:
    plan = all_workers()
    waiting = node(0, plan, nodes=3)
    pair = [node(1, plan, nodes=3) for _ in range(2)]
    wait_for(lambda: any(launch.process.poll() is not None for launch in pair))
    first, second = sorted(pair, key=lambda launch: launch.process.poll() is None)
    assert first.end() == 2
    assert "two launchers say that they are node 1" in first.err
    assert second.process.poll() is None
    assert waiting.process.poll() is None
    other = node(2, plan, nodes=2)
    assert other.end() == 2
    assert "node 2 has --nnodes=2, and node 0 has --nnodes=3" in other.err


def test_strangers_are_of_no_account(node: Callable[..., Launch]) -> None:
    port = free_ports(1)[0]
    zero = node(0, all_workers(), rendezvous={"address": f"127.0.0.1:{port}"})

    def connect() -> socket.socket | None:
        try:
            return socket.create_connection(("127.0.0.1", port), 1.0)
        except OSError:
            return None

    for text in (b"GET / HTTP/1.1\r\n\r\n", b'{"kind": "offer"}\n', b'{"kind": "over"}\n', b"[]\n"):
        talk = wait_for(connect)
        talk.sendall(text)
        talk.close()
    one = node(1, all_workers(), rendezvous={"address": f"127.0.0.1:{port}"})
    assert (zero.end(), one.end()) == (0, 0)


def test_the_port_of_the_rendezvous_is_taken(node: Callable[..., Launch]) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        launch = node(0, all_workers(), rendezvous={"address": f"127.0.0.1:{port}"})
        assert launch.end() == 2
    assert launch.err == f"runner: --rendezvous: port {port} of this machine is in use\n"


def test_members_are_told_the_services_of_all_machines(node: Callable[..., Launch]) -> None:
    plan = {**all_workers(), "data": ["time.sleep(len(lives('data')) - 1); answer()"]}
    zero = node(0, plan, counts={"worker": 1, "data": 1})
    one = node(1, plan, counts={"worker": 1, "data": 2})
    assert (zero.end(), one.end()) == (0, 0)
    told = [zero.lives(name)[0]["told"] for name in WORKERS[:2]]
    assert told[0] == told[1]
    ports = {life["told"][1] for life in zero.lives("data")}
    assert {address.rpartition(":")[2] for address in told[0]} == ports
    assert len(ports) == 3
    logs = sorted(path.name for path in (zero.folder / "logs/attempt-1").glob("data-*"))
    assert logs == ["data-0.log", "data-1.log", "data-2.log"]


def test_a_service_that_is_lost_on_one_machine_restarts_all(node: Callable[..., Launch]) -> None:
    lives = ["notice('data', after=0.5)", "time.sleep(0.5); exit(0)"]
    plan = {**dict.fromkeys(WORKERS, lives), "data": ["answer()"]}
    zero = node(0, plan, counts={"worker": 1})
    one = node(1, plan, counts={"worker": 1, "data": 1})
    for name in WORKERS[:2]:
        zero.pid(name)
    os.kill(zero.pid("data"), signal.SIGKILL)
    assert (zero.end(), one.end()) == (0, 0)
    assert [len(zero.lives(name)) for name in (*WORKERS[:2], "data")] == [2, 2, 2]
    assert zero.lives("worker 0")[1]["told"] != zero.lives("worker 0")[0]["told"]
    told = "node 1: data 0 was killed by SIGKILL; starting all again from the last checkpoint"
    assert f"{told} (1 of 2)" in zero.notes
