"""A `TFJob` of Kubeflow's Training Operator, version 1.

The fields are those of the operator's API (`kubeflow.org/v1`). The operator sets `TF_CONFIG` in the
container named `tensorflow` if there is more than one pod. With the restart policy `ExitCode`, it
restarts pods that exit with 128 or more: killed, evicted, or a lost member (138).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orbit_runner.launch.deploy.job_spec import JobSpec

_ROLES = {"chief": "Chief", "ps": "PS", "worker": "Worker", "evaluator": "Evaluator"}
_WEEK = 7 * 24 * 3600


def tfjob(job_spec: JobSpec, template: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Returns the TFJob, without metadata; `template` returns the pod template of a role."""
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "spec": _spec(job_spec, template)}


def _spec(job_spec: JobSpec, template: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    policy: dict[str, Any] = {
        # The evaluator exits after it has evaluated the last checkpoint. "Running" would stop it as
        # soon as training is done.
        "cleanPodPolicy": "None" if "evaluator" in job_spec.roles else "Running",
        "backoffLimit": job_spec.restarts,
        "ttlSecondsAfterFinished": _WEEK,
    }
    if job_spec.seconds:
        policy["activeDeadlineSeconds"] = job_spec.seconds
    spec: dict[str, Any] = {"runPolicy": policy}
    if "chief" not in job_spec.roles:
        # Otherwise, the job ends with worker 0, and the others are stopped during their last steps.
        spec["successPolicy"] = "AllWorkers"
    spec["tfReplicaSpecs"] = {
        _ROLES[role]: {
            "replicas": count,
            "restartPolicy": "ExitCode",
            "template": template(role),
        }
        for role, count in job_spec.roles.items()
    }
    return spec
