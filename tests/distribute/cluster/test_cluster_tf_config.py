"""Clusters of `TF_CONFIG`, as launchers write it and with common mistakes, and of the config."""

import json

import pytest

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.description import ClusterError
from orbit_runner.distribute.cluster.resolver import (
    from_config,
    from_tf_config,
    parse_remote_cluster,
    remote_cluster,
)

CLUSTER = {"worker": ["a:1", "b:1"]}
FIRST = {"type": "worker", "index": 0}


def _text(cluster=CLUSTER, task=FIRST, **more):
    return json.dumps({"cluster": cluster, "task": task, **more})


def test_master_is_read_as_the_chief():
    jobs = {"master": ["m:1"], "worker": ["w:1"], "ps": ["p:1"]}

    cluster = from_tf_config(_text(jobs, {"type": "master", "index": 0}))

    assert cluster.jobs["chief"] == ("m:1",)
    assert "master" not in cluster.jobs
    assert cluster.is_chief


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "TF_CONFIG: is not valid JSON: "),
        ("{'cluster': 1}", "it begins with: \"{'cluster': 1}\""),
        ("[" * 100_000, "TF_CONFIG: is not valid JSON: "),
        ("[]", "TF_CONFIG: got '[]', expected {"),
        ('{"a": 1}', "`cluster` is missing or not a mapping"),
        (_text(cluster=["a:1"]), "`cluster` is missing or not a mapping"),
        (_text(task="worker"), "`task` is missing or not a mapping"),
        (_text({"worker": "a:1"}), "cluster.worker: got 'a:1', expected a list"),
        (_text({"worker": {"0": "a:1"}}), "cluster.worker: got {'0': 'a:1'}, expected a list"),
        (_text(task={"index": 0}), "task.type: got None, expected the name of a role"),
        (_text(task={"type": "worker"}), "task.index: got None, expected an integer"),
        (_text(task={"type": "worker", "index": "9" * 5000}), "task.index: got '999"),
        (_text(task={"type": "worker", "index": True}), "task.index: got True"),
        (
            _text({"master": ["a:1"], "chief": ["b:1"]}, {"type": "chief", "index": 0}),
            "cluster.chief: got 2 chiefs, allowed: one",
        ),
    ],
    ids=lambda value: value[:40],
)
def test_invalid_tf_config_is_rejected(text, said):
    with pytest.raises(ClusterError) as caught:
        from_tf_config(text)

    assert said in str(caught.value)
    assert str(caught.value).startswith("TF_CONFIG")
    assert len(str(caught.value)) < 600


# The workers of `runtime.worker_hosts`, and the servers of `runtime.remote_cluster`.


@pytest.mark.parametrize(
    ("hosts", "index", "workers", "me"),
    [
        ("a:1,b:1", 1, ("a:1", "b:1"), "worker 1"),
        (" a:1 , b:1, ", 0, ("a:1", "b:1"), "worker 0"),
        ("a:1", -1, ("a:1",), "worker 0"),
    ],
)
def test_workers_and_own_index_are_read_from_the_config(hosts, index, workers, me):
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
    ],
)  # fmt: skip
def test_invalid_hosts_are_rejected(hosts, index, said):
    with pytest.raises(ClusterError) as caught:
        from_config(RuntimeConfig(worker_hosts=hosts, task_index=index))

    assert said in str(caught.value)


def test_remote_cluster_is_read_from_the_config():
    runtime = RuntimeConfig(
        distribution_strategy="parameter_server", remote_cluster="worker=a:1, b:1; ps = c:1 ;"
    )

    assert remote_cluster(runtime) == {"worker": ("a:1", "b:1"), "ps": ("c:1",)}
    assert remote_cluster(RuntimeConfig()) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a:1", "got 'a:1', expected each role once, such as worker=a:2222"),
        ("worker=a:1;worker=b:1", "got 'worker=b:1', expected each role once"),
        ("", "has no worker"),
        ("worker=a:1;ps=b:1;chief=c:1", "got the role chief, which does not run a server"),
        ("worker=a;ps=b:1", "cluster.worker[0]: got 'a', expected host:port"),
    ],
)
def test_invalid_remote_cluster_setting_is_rejected(text, said):
    with pytest.raises(ClusterError) as caught:
        parse_remote_cluster(text)

    assert said in str(caught.value)
    assert str(caught.value).startswith("runtime.remote_cluster: ")
