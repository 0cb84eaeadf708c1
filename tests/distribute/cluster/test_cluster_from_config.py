"""The workers of `runtime.worker_hosts`, and the servers of `runtime.remote_cluster`."""

from __future__ import annotations

import pytest

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.description import ClusterError
from orbit_runner.distribute.cluster.sources import from_config, parse_remote_cluster


@pytest.mark.parametrize(
    ("hosts", "index", "workers", "me"),
    [
        ("a:1,b:1", 1, ("a:1", "b:1"), "worker 1"),
        (" a:1 , b:1, ", 0, ("a:1", "b:1"), "worker 0"),
        ("a:1", -1, ("a:1",), "worker 0"),
    ],
)
def test_workers_and_own_index_are_read_from_the_config(
    hosts: str, index: int, workers: tuple[str, ...], me: str
) -> None:
    cluster = from_config(RuntimeConfig(worker_hosts=hosts, task_index=index))

    assert cluster.jobs == {"worker": workers}
    assert str(cluster.me) == me
    assert cluster.source == "runtime.worker_hosts"


@pytest.mark.parametrize(
    ("hosts", "index", "said"),
    [
        (
            "a:1,b:1", -1,
            "runtime.task_index: is not set, but runtime.worker_hosts has 2 workers\n"
            "set it on each worker: 0 to 1",
        ),
        ("a:1,b:1", 2, "runtime.worker_hosts: task.index: got 2, allowed: 0 to 1"),
        ("a,b:1", 0, "cluster.worker[0]: got 'a', expected host"),
        ("a:1,a:1", 0, "got a:1, already used by worker[0]"),
        (" , ", -1, "the cluster has no worker"),
    ],
)  # fmt: skip
def test_invalid_hosts_are_rejected(hosts: str, index: int, said: str) -> None:
    with pytest.raises(ClusterError) as caught:
        from_config(RuntimeConfig(worker_hosts=hosts, task_index=index))

    assert said in str(caught.value)


def test_remote_cluster_setting_is_parsed() -> None:
    found = parse_remote_cluster("worker=a:1, b:1; ps = c:1 ;")

    assert found == {"worker": ("a:1", "b:1"), "ps": ("c:1",)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a:1", "got 'a:1', expected each role once, such as worker=a:2222"),
        ("worker=a:1;worker=b:1", "got 'worker=b:1', expected each role once"),
        ("worker=a:1", "has no ps"),
        ("ps=a:1", "has no worker"),
        ("", "has no worker"),
        ("wroker=a:1;ps=b:1", "has no worker"),
        ("worker=a:1;ps=b:1;pss=c:1", "unknown role 'pss'; did you mean 'ps'?"),
        ("worker=a:1;ps=b:1;chief=c:1", "got the role chief, which does not run a server"),
        ("worker=a;ps=b:1", "cluster.worker[0]: got 'a', expected host:port"),
        ("worker=a:1;ps=a:1", "cluster.ps[0]: got a:1, already used by worker[0]"),
    ],
)
def test_invalid_remote_cluster_setting_is_rejected(text: str, said: str) -> None:
    with pytest.raises(ClusterError) as caught:
        parse_remote_cluster(text)

    assert said in str(caught.value)
    assert str(caught.value).startswith("runtime.remote_cluster: ")
