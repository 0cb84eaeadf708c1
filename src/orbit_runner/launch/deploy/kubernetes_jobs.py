"""A `JobSet` of indexed jobs, one for each role; a `Job` for a single process or a sweep.

The fields are those of `jobset.x-k8s.io/v1alpha2` and `batch/v1`. If a pod is killed or evicted, or
reports a lost member (138), its job fails and the JobSet restarts all jobs. A failure that would
recur, such as a config error, ends the JobSet. The pods of a sweep do not depend on each other: a
pod that is lost is replaced, and the others go on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from orbit_runner.launch.deploy.job_spec import JobSpec

_WEEK, _PORT = 7 * 24 * 3600, 2222
# Exit codes after which a restart does not help: of `runner run`, and of a shell that cannot find
# or start the program.
_FINAL = (1, 2, 3, 6, 126, 127)
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"

Template = Callable[[str], dict[str, Any]]


def job(job_spec: JobSpec, template: Template) -> dict[str, Any]:
    """Returns the JobSet or Job without metadata; `template` returns the pod template of a role."""
    if job_spec.is_sweep or job_spec.processes == 1:
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "spec": _single_job_spec(job_spec, template),
        }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "spec": _jobset_spec(job_spec, template),
    }


def _single_job_spec(job_spec: JobSpec, template: Template) -> dict[str, Any]:
    (role,) = job_spec.roles
    count = job_spec.processes
    spec: dict[str, Any] = {"ttlSecondsAfterFinished": _WEEK}
    if job_spec.is_sweep:
        spec |= {"completionMode": "Indexed", "completions": count, "parallelism": count}
    spec |= _job_spec(job_spec, template(role))
    spec["backoffLimit"] = job_spec.restarts * count  # Kubernetes counts the failures of all pods.
    return spec


def _jobset_spec(job_spec: JobSpec, template: Template) -> dict[str, Any]:
    reasons = ["PodFailurePolicy", "DeadlineExceeded"]
    rule = {"name": "finalFailure", "action": "FailJobSet", "onJobFailureReasons": reasons}
    spec: dict[str, Any] = {
        "ttlSecondsAfterFinished": _WEEK,
        # Members look up each other's addresses before they are ready.
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "failurePolicy": {"maxRestarts": job_spec.restarts, "rules": [rule]},
    }
    if "ps" in job_spec.roles:
        # Workers and parameter servers exit after the chief.
        leading = [role for role in job_spec.roles if role in ("chief", "evaluator")]
        spec["successPolicy"] = {"operator": "All", "targetReplicatedJobs": leading}
    spec["replicatedJobs"] = [
        {
            "name": role,
            "replicas": 1,
            "template": {"spec": _indexed_job_spec(job_spec, template(role), role)},
        }
        for role in job_spec.roles
    ]
    return spec


def _indexed_job_spec(job_spec: JobSpec, template: dict[str, Any], role: str) -> dict[str, Any]:
    (container,) = template["spec"]["containers"]
    # Kubernetes replaces $(NAME) only with variables that precede it in the list.
    container["env"] = [
        {"name": "TASK_INDEX", "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}},
        {"name": "TF_CONFIG", "value": _tf_config(job_spec, role)},
    ]
    count = job_spec.roles[role]
    return {
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": count,
        **_job_spec(job_spec, template),
    }


def _job_spec(job_spec: JobSpec, template: dict[str, Any]) -> dict[str, Any]:
    codes = {"containerName": "tensorflow", "operator": "In", "values": [*_FINAL]}
    spec: dict[str, Any] = {
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": codes}]},
    }
    if job_spec.seconds:
        spec["activeDeadlineSeconds"] = job_spec.seconds
    pod = {"restartPolicy": "Never", **template["spec"]}
    return {**spec, "template": {**template, "spec": pod}}


def _tf_config(job_spec: JobSpec, role: str) -> str:
    cluster = {
        name: [
            f"{job_spec.name}-{name}-0-{index}.{job_spec.name}:{_PORT}" for index in range(count)
        ]
        for name, count in job_spec.roles.items()
        if name != "evaluator"  # The evaluator reads checkpoints and does not communicate.
    }
    # `cloud`: host names may not be resolvable yet when a member starts.
    text = json.dumps(
        {"cluster": cluster, "task": {"type": role, "index": "INDEX"}, "environment": "cloud"}
    )
    return text.replace('"INDEX"', "$(TASK_INDEX)")
