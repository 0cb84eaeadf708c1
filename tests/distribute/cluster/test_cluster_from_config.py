"""A cluster that the config describes, and the servers of `runtime.remote_cluster`."""

from __future__ import annotations

from typing import Any

import pytest

from orbit_runner.config.schema.runtime import ClusterConfig, RuntimeConfig
from orbit_runner.distribute.cluster.description import ClusterError
from orbit_runner.distribute.cluster.from_config import (
    configured_jobs,
    from_config,
    parse_remote_cluster,
)

TWO = ClusterConfig(worker=["a:1", "b:1"])
ALL = ClusterConfig(chief=["c:1"], worker=["a:1"], ps=["p:1", "q:1"], evaluator=["e:1"])


@pytest.mark.parametrize(
    ("settings", "jobs", "me"),
    [
        ({"worker_hosts": "a:1,b:1", "task_index": 1}, {"worker": ("a:1", "b:1")}, "worker 1"),
        ({"worker_hosts": " a:1 , b:1, ", "task_index": 0}, {"worker": ("a:1", "b:1")}, "worker 0"),
        ({"worker_hosts": "a:1"}, {"worker": ("a:1",)}, "worker 0"),
        ({"cluster": TWO, "task_index": 1}, {"worker": ("a:1", "b:1")}, "worker 1"),
        ({"cluster": ALL, "task_type": "chief"}, ALL.jobs(), "chief 0"),
        ({"cluster": ALL, "task_type": "ps", "task_index": 1}, ALL.jobs(), "ps 1"),
        ({"cluster": ALL, "task_type": "evaluator"}, ALL.jobs(), "evaluator 0"),
        ({"cluster": TWO, "task_type": "evaluator"}, TWO.jobs(), "evaluator 0"),
        ({"cluster": ALL}, ALL.jobs(), "worker 0"),
        ({"cluster": ClusterConfig(chief=["c:1"])}, {"chief": ("c:1",)}, "chief 0"),
    ],
)
def test_cluster_and_own_member_are_read_from_the_config(
    settings: dict[str, Any], jobs: dict[str, tuple[str, ...]], me: str
) -> None:
    cluster = from_config(RuntimeConfig(**settings))

    assert cluster.jobs == jobs
    assert str(cluster.me) == me
    named = "worker_hosts" if "worker_hosts" in settings else "cluster"
    assert cluster.source == f"runtime.{named}"


def test_default_config_describes_no_cluster() -> None:
    assert configured_jobs(RuntimeConfig()) == {}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"worker_hosts": "a:1,b:1"},
            "runtime.task_index: is not set, but runtime.worker_hosts has 2 members with the "
            "role worker\nset it on each member: 0 to 1",
        ),
        ({"cluster": ALL, "task_type": "ps"}, "runtime.cluster has 2 members with the role ps"),
        ({"cluster": TWO, "task_index": 2}, "runtime.cluster: task.index: got 2, allowed: 0 to 1"),
        ({"cluster": TWO, "task_type": "ps"}, "got 'ps', but the cluster has no ps"),
        ({"worker_hosts": "a,b:1", "task_index": 0}, "cluster.worker[0]: got 'a', expected host"),
        ({"worker_hosts": "a:1,a:1", "task_index": 0}, "got a:1, already used by worker[0]"),
        ({"worker_hosts": " , "}, "the cluster has no worker"),
    ],
)
def test_invalid_cluster_config_is_rejected(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ClusterError) as caught:
        from_config(RuntimeConfig(**settings))

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
