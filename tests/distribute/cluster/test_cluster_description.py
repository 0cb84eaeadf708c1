"""Descriptions of clusters: which are valid, which are rejected, and their `TF_CONFIG`."""

import json

import pytest

from orbit_runner.distribute.cluster.addresses import address_problem, split_address
from orbit_runner.distribute.cluster.description import ClusterError, Member, check_cluster
from tests.support.problems import raises

JOBS = {"worker": ("w0:1", "w1:1"), "chief": ("c:1",), "ps": ("p:1",), "evaluator": ("e:1",)}


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("host:1", ("host", 1)),
        ("10.0.0.1:65535", ("10.0.0.1", 65535)),
        ("[2001:db8::1]:2222", ("2001:db8::1", 2222)),
        ("a-b.c.svc.cluster.local:2222", ("a-b.c.svc.cluster.local", 2222)),
    ],
)
def test_valid_address_is_accepted_and_split(address, parts):
    assert address_problem(address) == ""
    assert split_address(address) == parts


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("host", "expected host:port"),
        ("", "expected host:port"),
        (":2222", "expected host:port"),
        ("grpc://host:1", "expected host:port"),
        (2222, "got 2222, expected host:port"),
        ("host:0", "allowed: 1 to 65535"),
        ("host:65536", "allowed: 1 to 65535"),
        ("host:http", "got port 'http'"),
        ("host:²", "got port '²'"),
        ("host:" + "9" * 5000, "allowed: 1 to 65535"),
        ("2001:db8::1:2222", "IPv6 host in brackets"),
    ],
)
def test_invalid_address_is_rejected_with_a_short_message(address, said):
    problem = address_problem(address)

    assert said in problem
    assert len(problem) < 160


def test_members_are_ordered_by_role_with_the_chief_first():
    cluster = check_cluster(JOBS, "worker", 1, "here")

    assert [str(member) for member in cluster.members()] == [
        "chief 0", "worker 0", "worker 1", "ps 0", "evaluator 0",
    ]  # fmt: skip
    assert [member.address for member in cluster.trainers()] == ["c:1", "w0:1", "w1:1"]
    assert cluster.me == Member("worker", 1, "w1:1")
    assert cluster.as_dict() == {
        "from": "here",
        "me": "worker 1",
        "members": {role: list(addresses) for role, addresses in JOBS.items()},
    }


@pytest.mark.parametrize(
    ("jobs", "role", "index", "chief"),
    [
        (JOBS, "chief", 0, True),
        (JOBS, "worker", 0, False),
        (JOBS, "ps", 0, False),
        (JOBS, "evaluator", 0, False),
        ({"worker": ("a:1", "b:1")}, "worker", 0, True),
        ({"worker": ("a:1", "b:1")}, "worker", 1, False),
        ({"worker": ("a:1",), "ps": ("b:1",)}, "ps", 0, False),
    ],
)
def test_exactly_one_member_is_the_chief(jobs, role, index, chief):
    assert check_cluster(jobs, role, index, "here").is_chief is chief


@pytest.mark.parametrize("index", [0, 3])
def test_evaluator_need_not_be_listed_in_the_cluster(index):
    jobs = {"worker": ("a:1", "b:1")}
    if index:
        with raises("bad-cluster", "here"):
            check_cluster(jobs, "evaluator", index, "here")
        return
    cluster = check_cluster(jobs, "evaluator", 0, "here")

    assert cluster.me == Member("evaluator", 0, "")
    assert not cluster.is_chief
    assert "evaluator" not in json.loads(cluster.tf_config())["cluster"]


@pytest.mark.parametrize(
    ("jobs", "role", "index", "said"),
    [
        (JOBS, "worker", 2, "here: task.index: got 2, allowed: 0 to 1 (the cluster's worker"),
        (JOBS, "wroker", 0, "task.type: unknown role 'wroker'; did you mean 'worker'?\nallowed: "),
        ({"worker": ("a:1",)}, "ps", 0, "task.type: got 'ps', but the cluster has no ps"),
        ({"wokrer": ("a:1",)}, "worker", 0, "unknown role 'wokrer'; did you mean 'worker'?"),
        ({"ps": ("a:1",)}, "ps", 0, "there is neither a chief nor a worker"),
        ({"chief": ("a:1", "b:1")}, "chief", 0, "cluster.chief: got 2 chiefs, allowed: one"),
        (
            {"worker": ("a:1",), "evaluator": ("b:1", "c:1")}, "worker", 0,
            "cluster.evaluator: got 2 evaluators, allowed: one",
        ),
        ({"worker": ("a:1", "a:1")}, "worker", 0, "worker[1]: got a:1, already used by worker[0]"),
        (
            {"worker": ("a:1",), "ps": ("a:1",)}, "worker", 0,
            "cluster.ps[0]: got a:1, already used by worker[0]",
        ),
        ({"worker": ({"x": 1}, [2])}, "worker", 0, "cluster.worker[1]: got [2], expected host"),
    ],
)  # fmt: skip
def test_invalid_cluster_description_is_rejected(jobs, role, index, said):
    with pytest.raises(ClusterError) as caught:
        check_cluster(jobs, role, index, "here")

    assert said in str(caught.value)
    assert caught.value.exit_code == 2


def test_all_cluster_errors_are_reported_in_at_most_nine_lines():
    with pytest.raises(ClusterError) as caught:
        check_cluster({"worker": ("bad",) * 200, "pss": ("a:1",)}, "worker", 900, "here")

    lines = str(caught.value).splitlines()
    assert len(lines) <= 9
    assert lines[-1] == "… and 198 more"
