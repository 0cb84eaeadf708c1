"""JobSets and Jobs for Kubernetes are valid, and their pods form one cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from orbit_runner.distribute.cluster.description import Cluster
from orbit_runner.distribute.cluster.resolver import resolve_cluster
from orbit_runner.launch.deploy.kubernetes import parse_label, parse_toleration
from tests.support.manifest_experiments import ORDERS, resolved_of, settings

PLACE = ["kubernetes", "--image=registry.example/runner:1", "--volume_claim=runs"]
Printed = Callable[..., str]
ALL = [
    *("--cpus=4", "--memory=16Gi", "--time=2-12", "--namespace=team", "--max_restarts=3"),
    *("--toleration=nvidia.com/gpu:NoSchedule", "--toleration=team=vision", "--pull_secret=key"),
    *("--node_selector=pool=gpu", "--shared_memory=8Gi", "--volume_claim=data:/data"),
]


def _job(text: str) -> dict[str, Any]:
    _, job = yaml.safe_load_all(text)
    return dict(job)


def _job_specs(job: dict[str, Any]) -> dict[str, dict[str, Any]]:
    if job["kind"] == "Job":
        return {"worker": job["spec"]}
    return {item["name"]: item["template"]["spec"] for item in job["spec"]["replicatedJobs"]}


def _pods(job: dict[str, Any]) -> list[dict[str, Any]]:
    return [spec["template"]["spec"] for spec in _job_specs(job).values()]


def _members(job: dict[str, Any], runtime: Any) -> Iterator[Cluster]:
    """Does what the kubelet does with the variables of each pod."""
    for spec in _job_specs(job).values():
        (container,) = spec["template"]["spec"]["containers"]
        index, text = container["env"]
        for number in range(spec["completions"]):
            environ = {"TF_CONFIG": text["value"].replace(f"$({index['name']})", str(number))}
            cluster = resolve_cluster(runtime, environ)
            assert cluster is not None
            yield cluster


@pytest.mark.sample(6)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("more", [[], ALL], ids=["bare", "all flags"])
def test_manifest_matches_the_schema_and_the_roles(
    printed: Printed, valid: Callable[[Any, str], None], order: str, more: list[str]
) -> None:
    flags, roles = ORDERS[order]

    job = _job(printed(*PLACE, *flags, *more))

    one = sum(roles.values()) == 1
    valid(job, "job" if one else "jobset")
    found = {role: spec.get("completions", 1) for role, spec in _job_specs(job).items()}
    assert found == roles


@pytest.mark.parametrize("order", [name for name, (_, n) in ORDERS.items() if sum(n.values()) > 1])
def test_pods_form_one_cluster(printed: Printed, order: str) -> None:
    flags, roles = ORDERS[order]
    job = _job(printed(*PLACE, *flags, "--name=a-job"))

    members = [*_members(job, settings(flags, roles).runtime)]

    assert len(members) == sum(roles.values())
    assert sum(member.is_chief for member in members) == 1
    for member in members:
        assert member.hosts_resolve_late
        # jobset-replicatedjob-jobindex-podindex.subdomain
        if member.me.role != "evaluator":
            host = f"a-job-{member.me.role}-0-{member.me.index}.a-job"
            assert member.me.address == f"{host}:2222"


def test_pods_run_the_given_experiment(printed: Printed, tmp_path: Any) -> None:
    flags, roles = ORDERS["all roles"]

    config_map, _ = yaml.safe_load_all(printed(*PLACE, *flags))

    (tmp_path / "experiment.yaml").write_text(config_map["data"]["experiment.yaml"])
    assert resolved_of("--experiment=experiment.yaml").config == settings(flags, roles)


def test_pods_have_the_given_tolerations_node_selector_and_pull_secret(printed: Printed) -> None:
    for pod in _pods(_job(printed(*PLACE, *ORDERS["servers"][0], *ALL))):
        assert pod["tolerations"] == [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "team", "operator": "Equal", "value": "vision"},
        ]
        assert pod["nodeSelector"] == {"pool": "gpu"}
        assert pod["imagePullSecrets"] == [{"name": "key"}]
        memory = {"medium": "Memory", "sizeLimit": "8192Mi"}
        assert {"name": "shared-memory", "emptyDir": memory} in pod["volumes"]
    for pod in _pods(_job(printed(*PLACE, *ORDERS["servers"][0]))):
        assert not {"tolerations", "nodeSelector", "imagePullSecrets"} & {*pod}


@pytest.mark.parametrize("order", ["one process", "workers", "all roles"])
def test_lost_pods_restart_the_job_and_other_failures_end_it(printed: Printed, order: str) -> None:
    job = _job(printed(*PLACE, *ORDERS[order][0], "--max_restarts=4", "--time=90"))

    for spec in _job_specs(job).values():
        (rule,) = spec["podFailurePolicy"]["rules"]
        assert rule["action"] == "FailJob"
        assert {1, 2, 3} <= {*rule["onExitCodes"]["values"]}
        assert not {137, 138, 139, 143} & {*rule["onExitCodes"]["values"]}
        assert spec["template"]["spec"]["restartPolicy"] == "Never"
        assert spec["activeDeadlineSeconds"] == 90 * 60
        assert spec["backoffLimit"] == (4 if order == "one process" else 0)
    if order != "one process":
        policy = job["spec"]["failurePolicy"]
        assert policy["maxRestarts"] == 4
        assert policy["rules"][0]["action"] == "FailJobSet"
        assert policy["rules"][0]["onJobFailureReasons"] == ["PodFailurePolicy", "DeadlineExceeded"]


@pytest.mark.parametrize(
    ("order", "leading"),
    [("workers", None), ("servers", ["chief"]), ("all roles", ["chief", "evaluator"])],
)
def test_job_succeeds_when_training_and_evaluation_end(
    printed: Printed, order: str, leading: list[str] | None
) -> None:
    policy = _job(printed(*PLACE, *ORDERS[order][0]))["spec"].get("successPolicy")

    expected = leading and {"operator": "All", "targetReplicatedJobs": leading}
    assert policy == expected


@pytest.mark.parametrize("api", ["jobset", "tfjob"])
def test_grace_period_is_that_of_the_config_if_longer(printed: Printed, api: str) -> None:
    flags = [*ORDERS["workers"][0], f"--api={api}", "--runtime.grace_period=299.5"]

    assert "terminationGracePeriodSeconds: 300\n" in printed(*PLACE, *flags)


@pytest.mark.parametrize("text", ["", ":NoSchedule", "a b", "a:Never", "=x"])
def test_invalid_tolerations_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected KEY\[=VALUE\]\[:EFFECT\]"):
        parse_toleration(text)


@pytest.mark.parametrize("text", ["", "a", "=x", "a= b"])
def test_invalid_labels_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="expected KEY=VALUE"):
        parse_label(text)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--toleration=a:Never", "--toleration\n    got 'a:Never', expected KEY[=VALUE][:EFFECT]"),
        ("--node_selector=pool", "--node_selector\n    got 'pool', expected KEY=VALUE"),
        ("--pull_secret=A", "--pull_secret\n    got 'A', expected lowercase letters"),
        (
            "--shared_memory=8G",
            "--shared_memory\n    got '8G', expected an amount such as 512Mi or 16Gi",
        ),
        ("--api=mpijob", "argument --api: invalid choice: 'mpijob'"),
    ],
)
def test_invalid_flags_are_rejected(told: Callable[..., str], flag: str, said: str) -> None:
    assert said in told(*PLACE, "--experiment=digits", flag)
