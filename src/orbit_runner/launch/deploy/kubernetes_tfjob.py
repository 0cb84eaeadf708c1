"""A `TFJob` of Kubeflow's Training Operator, version 1.

The fields are those of the operator's API (`kubeflow.org/v1`). The operator sets `TF_CONFIG` in the
container named `tensorflow` if there is more than one pod. With the restart policy `ExitCode`, it
restarts pods that exit with 128 or more: killed, evicted, or a lost member (138).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orbit_runner.launch.deploy.job_spec import Order

_ROLES = {"chief": "Chief", "ps": "PS", "worker": "Worker", "evaluator": "Evaluator"}
_WEEK = 7 * 24 * 3600


def tfjob(order: Order, template: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Returns the TFJob, without metadata; `template` returns the pod template of a role."""
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "spec": _spec(order, template)}


def _spec(order: Order, template: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    policy: dict[str, Any] = {
        # The evaluator exits after it has evaluated the last checkpoint. "Running" would stop it as
        # soon as training is done.
        "cleanPodPolicy": "None" if "evaluator" in order.roles else "Running",
        "backoffLimit": order.restarts,
        "ttlSecondsAfterFinished": _WEEK,
    }
    if order.seconds:
        policy["activeDeadlineSeconds"] = order.seconds
    spec: dict[str, Any] = {"runPolicy": policy}
    if "chief" not in order.roles:
        # Otherwise, the job ends with worker 0, and the others are stopped during their last steps.
        spec["successPolicy"] = "AllWorkers"
    spec["tfReplicaSpecs"] = {
        _ROLES[role]: {
            "replicas": count,
            "restartPolicy": "ExitCode",
            "template": template(role),
        }
        for role, count in order.roles.items()
    }
    return spec
