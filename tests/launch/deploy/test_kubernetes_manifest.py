"""TFJob manifests for Kubernetes: their content, and what the pods do with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from orbit_runner.distribute.cluster.resolver import resolve_cluster
from orbit_runner.launch.deploy.kubernetes import model_dir_problem, parse_claims
from tests.support.manifest_experiments import MIRRORED, ORDERS, TRICKY, resolved_of, settings

JOBS = ["kubernetes", "--image=registry.example/runner:1", "--volume_claim=runs"]
PLACE = [*JOBS, "--api=tfjob"]
Printed = Callable[..., str]


def _documents(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    config_map, job = yaml.safe_load_all(text)
    return config_map, job


def _replicas(job: dict[str, Any]) -> dict[str, Any]:
    return dict(job["spec"]["tfReplicaSpecs"])


def _container(job: dict[str, Any], role: str) -> dict[str, Any]:
    return dict(_replicas(job)[role]["template"]["spec"]["containers"][0])


def _expanded(argument: str) -> str:
    """Does what the kubelet does to an argument: `$$` is `$`, and `$(NAME)` would be a variable."""
    parts = argument.split("$$")
    assert not any("$(" in part for part in parts)
    return "$".join(parts)


def _tf_configs(job: dict[str, Any]) -> dict[str, str]:
    """Does what the operator does: nothing for one pod; no evaluator in the cluster."""
    replicas, name = _replicas(job), job["metadata"]["name"]
    if sum(spec["replicas"] for spec in replicas.values()) == 1:
        return {}
    cluster = {
        role.lower(): [f"{name}-{role.lower()}-{i}.ns.svc:2222" for i in range(spec["replicas"])]
        for role, spec in replicas.items()
        if role != "Evaluator"
    }
    return {
        f"{role.lower()} {i}": json.dumps(
            {
                "cluster": cluster,
                "task": {"type": role.lower(), "index": i},
                "environment": "cloud",
            }
        )
        for role, spec in replicas.items()
        for i in range(spec["replicas"])
    }


@pytest.mark.sample(9)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "more",
    [
        [],
        [
            *("--cpus=4", "--memory=16Gi", "--time=2-12", "--namespace=team", "--max_restarts=3"),
            *("--name=my-job", "--volume_claim=data:/data", "--mode=train", "--resume=override"),
        ],
    ],
    ids=["bare", "all flags"],
)
def test_manifest_matches_the_schemas_and_the_roles(
    printed: Printed, valid: Callable[[Any, str], None], order: str, more: list[str]
) -> None:
    flags, roles = ORDERS[order]

    config_map, job = _documents(printed(*PLACE, *flags, *more))

    valid(config_map, "config_map")
    valid(job, "tfjob")
    names = {"chief": "Chief", "ps": "PS", "worker": "Worker", "evaluator": "Evaluator"}
    assert {r: spec["replicas"] for r, spec in _replicas(job).items()} == {
        names[role]: count for role, count in roles.items()
    }


@pytest.mark.parametrize("order", ORDERS)
def test_pods_run_the_given_experiment_as_one_cluster(
    printed: Printed, order: str, tmp_path: Path
) -> None:
    flags, roles = ORDERS[order]

    config_map, job = _documents(printed(*PLACE, *flags))

    (tmp_path / "experiment.yaml").write_text(config_map["data"]["experiment.yaml"])
    config = resolved_of("--experiment=experiment.yaml").config
    assert config == settings(flags, roles)
    members = {}
    for name, text in _tf_configs(job).items():
        cluster = resolve_cluster(config.runtime, {"TF_CONFIG": text})
        assert cluster is not None
        assert cluster.hosts_resolve_late
        members[name] = cluster.is_chief
    first = "chief 0" if "chief" in roles else "worker 0"
    assert [name for name, writes in members.items() if writes] == ([first] if members else [])
    assert len(members) == (sum(roles.values()) if sum(roles.values()) > 1 else 0)


def test_manifest_meets_the_requirements_of_the_training_operator(printed: Printed) -> None:
    _, job = _documents(printed(*PLACE, *ORDERS["all roles"][0], "--time=90", "--max_restarts=4"))

    for spec in _replicas(job).values():
        assert spec["restartPolicy"] == "ExitCode"
        (container,) = spec["template"]["spec"]["containers"]
        assert container["name"] == "tensorflow"
        assert container["image"] == "registry.example/runner:1"
        assert container["command"] == ["runner", "run"]
        assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 120
    policy = job["spec"]["runPolicy"]
    assert (policy["backoffLimit"], policy["activeDeadlineSeconds"]) == (4, 90 * 60)


@pytest.mark.parametrize(
    ("order", "clean", "success"),
    [
        ("one process", "Running", "AllWorkers"),
        ("workers", "Running", "AllWorkers"),
        ("with evaluator", "None", "AllWorkers"),
        ("servers", "Running", None),
        ("all roles", "None", None),
    ],
)
def test_clean_up_and_success_policies_fit_the_roles(
    printed: Printed, order: str, clean: str, success: str | None
) -> None:
    _, job = _documents(printed(*PLACE, *ORDERS[order][0]))

    assert job["spec"]["runPolicy"]["cleanPodPolicy"] == clean
    assert job["spec"].get("successPolicy") == success


def test_all_pods_mount_the_config_and_the_volumes(printed: Printed) -> None:
    config_map, job = _documents(
        printed(*PLACE, "--volume_claim=data:/data", "--namespace=team", *ORDERS["all roles"][0])
    )

    assert config_map["metadata"] == job["metadata"] == {"name": "digits-mlp", "namespace": "team"}
    for spec in _replicas(job).values():
        pod = spec["template"]["spec"]
        by_name = {volume["name"]: volume for volume in pod["volumes"]}
        where = {m["mountPath"]: by_name[m["name"]] for m in pod["containers"][0]["volumeMounts"]}
        assert where["/etc/orbit-runner"]["configMap"] == {"name": "digits-mlp"}
        assert where["/runs"]["persistentVolumeClaim"] == {"claimName": "runs"}
        assert where["/data"]["persistentVolumeClaim"] == {"claimName": "data"}
        assert pod["containers"][0]["args"][:2] == [
            "--experiment=/etc/orbit-runner/experiment.yaml",
            "--model_dir=/runs/digits-mlp",
        ]


def test_pods_request_the_given_cpus_memory_and_gpus(printed: Printed) -> None:
    _, job = _documents(printed(*PLACE, *ORDERS["servers"][0], "--cpus=4", "--memory=16Gi"))

    plain = {"cpu": "4", "memory": "16384Mi"}
    for role, expected in (
        ("Chief", plain),
        ("PS", plain),
        ("Worker", {**plain, "nvidia.com/gpu": "1"}),
    ):
        assert _container(job, role)["resources"] == {"requests": expected, "limits": expected}


@pytest.mark.parametrize(("order", "shared"), [("mirrored", True), ("servers", False)])
def test_pods_with_several_gpus_have_shared_memory(
    printed: Printed, order: str, shared: bool
) -> None:
    _, job = _documents(printed(*PLACE, *ORDERS[order][0]))

    mounts = [mount["mountPath"] for mount in _container(job, "Worker")["volumeMounts"]]
    assert ("/dev/shm" in mounts) is shared


def test_no_resources_are_requested_by_default(printed: Printed) -> None:
    _, job = _documents(printed(*PLACE, *ORDERS["workers"][0]))

    assert "resources" not in _container(job, "Worker")


def test_special_characters_survive_in_the_manifest(printed: Printed, tmp_path: Path) -> None:
    flags = [
        "--experiment=digits",
        f"--params_override={json.dumps({'description': TRICKY.replace('${', '$${')})}",
    ]
    folder = "--model_dir=/runs/a $(b) $$c 'd'"

    config_map, job = _documents(printed(*PLACE, *flags, folder, "--allow_partial", "--mode=train"))

    (tmp_path / "experiment.yaml").write_text(config_map["data"]["experiment.yaml"])
    assert resolved_of("--experiment=experiment.yaml").config.description == TRICKY
    assert [_expanded(text) for text in _container(job, "Worker")["args"]] == [
        "--experiment=/etc/orbit-runner/experiment.yaml", folder, "--mode=train", "--allow_partial",
    ]  # fmt: skip


def test_header_shows_the_command_claims_and_data_directories(printed: Printed) -> None:
    override = json.dumps({"description": "x"}, indent=0).replace('"x"', '"a\u2028b"')

    text = printed(
        *PLACE, "--experiment=resnet_cifar", "--data_dir=/data", f"--params_override={override}"
    )

    assert len([*yaml.safe_load_all(text)]) == 2
    body = text[text.index("apiVersion") :]
    assert body.index("name: tensorflow") < body.index("image: ") < body.index("args:")
    head = text[: text.index("apiVersion")]
    assert all(line.startswith("# ") for line in head.splitlines())
    assert head.startswith(
        "# Made by: runner manifest kubernetes --image=registry.example/runner:1"
    )
    assert "so this claim must be ReadWriteMany: runs\n" in head
    assert "#   task.train_data.data_dir: /data\n" in head


def test_volume_claims_are_parsed() -> None:
    assert parse_claims(["runs", "data:/data"]) == (("runs", "/runs"), ("data", "/data"))
    assert parse_claims(["runs:/a/b"]) == (("runs", "/a/b"),)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["runs:"], "got 'runs:', expected CLAIM:/PATH"),
        ([":/a"], "got ':/a', expected CLAIM:/PATH"),
        (["runs:a"], "got 'runs:a', expected CLAIM:/PATH"),
        (["runs:/"], "got 'runs:/', expected CLAIM:/PATH"),
        (["a", "b"], "got 'b', expected CLAIM:/PATH"),
        (["a:/x", "b:/x"], "got 'b:/x', but another claim is mounted at /x"),
    ],
)
def test_invalid_volume_claims_are_rejected(texts: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}$"):
        parse_claims(texts)


@pytest.mark.parametrize(
    ("folder", "fits"),
    [
        ("/runs/a", True),
        ("/data/a/b", True),
        ("/runs", False),
        ("/runsx/a", False),
        ("runs/a", False),
        ("/runs/../etc", False),
        ("/tmp/a", False),
    ],
)
def test_run_directory_must_be_on_a_mounted_volume(folder: str, fits: bool) -> None:
    assert (model_dir_problem(folder, [("r", "/runs"), ("d", "/data")]) == "") is fits


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["kubernetes"],
            ["--image\n    is not set", "--volume_claim\n    is not set; expected a claim that"],
        ),
        ([*PLACE, "--volume_claim=x"], ["--volume_claim\n    got 'x', expected CLAIM:/PATH"]),
        ([*PLACE, "--model_dir=runs/a"], ["--model_dir\n    got 'runs/a', expected a directory"]),
        ([*PLACE, "--model_dir=/tmp/a"], ["expected a directory below /runs"]),
        ([*PLACE, "--name=My_Job"], ["--name\n    got 'My_Job', expected lowercase letters"]),
        ([*PLACE, f"--name={'a' * 41}"], ["at most 40"]),
        ([*PLACE, "--cpus=some"], ["--cpus\n    got 'some', expected an integer"]),
        (
            [*PLACE, "--memory=16GB"],
            ["--memory\n    got '16GB', expected an amount such as 512Mi or 16Gi"],
        ),
        ([*PLACE, "--namespace=a b"], ["--namespace\n    got 'a b', expected a name without"]),
        ([*PLACE, "--nodes=2"], ["unknown flag --nodes"]),
        (
            [*PLACE, MIRRORED, "--workers=2", "--runtime.cluster_source=slurm"],
            ["runtime.cluster_source — --runtime.cluster_source", "allowed: auto, tf_config"],
        ),
    ],
)  # fmt: skip
def test_invalid_flags_are_rejected(
    told: Callable[..., str], arguments: list[str], said: list[str]
) -> None:
    found = told(*arguments, "--experiment=digits")

    assert [text for text in said if text not in found] == []
