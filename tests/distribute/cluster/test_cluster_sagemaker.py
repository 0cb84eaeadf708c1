"""SageMaker clusters, read from the environment variables of the containers."""

from __future__ import annotations

import json

import pytest

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.description import ClusterError
from orbit_runner.distribute.cluster.sagemaker import from_sagemaker, is_sagemaker

MIRRORED = RuntimeConfig(distribution_strategy="multi_worker_mirrored")


def _environ(count: int, me: str, turned: bool = False) -> dict[str, str]:
    hosts = [f"algo-{n}" for n in range(1, count + 1)]
    return {"SM_HOSTS": json.dumps(hosts[::-1] if turned else hosts), "SM_CURRENT_HOST": me}


@pytest.mark.parametrize("turned", [False, True])
def test_hosts_are_sorted_whatever_their_order_in_the_variable(turned: bool) -> None:
    cluster = from_sagemaker(MIRRORED, _environ(11, "algo-10", turned))

    assert cluster.jobs == {"worker": tuple(f"algo-{n}:2222" for n in range(1, 12))}
    assert cluster.me.index == 9
    assert cluster.source == "SageMaker"
    assert cluster.hosts_resolve_late


def test_roles_are_assigned_by_rank() -> None:
    runtime = RuntimeConfig(distribution_strategy="parameter_server", num_evaluators=1)

    members = [
        str(from_sagemaker(runtime, _environ(4, f"algo-{n}")).me) for n in range(1, 5)
    ]  # fmt: skip

    assert members == ["chief 0", "ps 0", "worker 0", "evaluator 0"]


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "SM_HOSTS is '', expected"),
        ({"SM_HOSTS": "algo-1"}, "SM_HOSTS is 'algo-1', expected"),
        ({"SM_HOSTS": "{}"}, "SM_HOSTS is '{}'"),
        ({"SM_HOSTS": "[1]"}, "SM_HOSTS is '[1]'"),
        ({"SM_HOSTS": "[" * 100_000}, "SM_HOSTS is '[["),
        (_environ(2, "algo-3"), "SM_CURRENT_HOST is 'algo-3', allowed: algo-1, algo-2"),
        (_environ(2, ""), "SM_CURRENT_HOST is '', allowed"),
        (
            {"SM_HOSTS": '["a", "a"]', "SM_CURRENT_HOST": "a"},
            "got a:2222, already used by worker[0]",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_invalid_sagemaker_variables_are_rejected(environ: dict[str, str], said: str) -> None:
    with pytest.raises(ClusterError) as caught:
        from_sagemaker(MIRRORED, environ)

    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("environ", "found"), [({}, False), (_environ(1, "algo-1"), False), (_environ(2, "x"), True)]
)
def test_sagemaker_is_detected_only_with_several_hosts(
    environ: dict[str, str], found: bool
) -> None:
    assert is_sagemaker(environ) is found
