"""Cluster descriptions are read as by TensorFlow's own resolvers."""

import json

import pytest
import tensorflow as tf

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.resolver import from_config, from_tf_config

WORKERS = {"worker": ["a:1", "b:1", "c:1"]}
ALL = {"chief": ["c:1"], "worker": ["w:1", "x:1"], "ps": ["p:1", "q:1"], "evaluator": ["e:1"]}


@pytest.mark.parametrize(
    ("jobs", "role", "index"),
    [
        *((WORKERS, "worker", index) for index in range(3)),
        (ALL, "chief", 0),
        (ALL, "worker", 1),
        (ALL, "ps", 1),
        (ALL, "evaluator", 0),
        (WORKERS, "evaluator", 0),
        ({"worker": ["[::1]:1"]}, "worker", 0),
    ],
)
def test_tf_config_is_read_as_tensorflow_reads_it(jobs, role, index, monkeypatch):
    variable = json.dumps({"cluster": jobs, "task": {"type": role, "index": index}})

    cluster = from_tf_config(variable)

    for text in (variable, cluster.tf_config()):
        monkeypatch.setenv("TF_CONFIG", text)
        theirs = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        assert theirs.cluster_spec().as_dict() == {r: list(a) for r, a in cluster.jobs.items()}
        assert (theirs.task_type, theirs.task_id) == (cluster.me.role, cluster.me.index)
    if cluster.me.address:
        assert theirs.cluster_spec().task_address(role, index) == cluster.me.address


def test_tensorflow_reads_a_tf_config_made_from_the_config(monkeypatch):
    runtime = RuntimeConfig(worker_hosts="a:1, b:2", task_index=1)

    monkeypatch.setenv("TF_CONFIG", from_config(runtime).tf_config())

    theirs = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    assert theirs.cluster_spec().as_dict() == {"worker": ["a:1", "b:2"]}
    assert (theirs.task_type, theirs.task_id) == ("worker", 1)
