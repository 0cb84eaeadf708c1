"""A `CustomJobSpec` of Vertex AI, for `gcloud ai custom-jobs create --config`.

The position of a worker pool determines its role: chief, workers, parameter servers, evaluators. A
pool that is not needed is left empty. Vertex AI sets `TF_CONFIG` if there is more than one replica,
with the roles `chief`, `worker` and `ps`. For an evaluator, it contains the role, but the evaluator
is not in the cluster.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from orbit_runner.launch.deploy.job_spec import JobSpec
from orbit_runner.launch.deploy.yaml_text import format_documents

SOURCE = "tf_config"
BUCKETS = "/gcs/"  # mount point of Cloud Storage
_POOLS = ("chief", "worker", "ps", "evaluator")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vertex:
    """Settings of a Vertex AI job."""

    image: str  # must contain `runner`
    machine_type: str
    accelerator_type: str = ""  # "" for no GPUs


def manifest(job_spec: JobSpec, settings: Vertex) -> str:
    """Returns the job as YAML."""
    scheduling: dict[str, Any] = {"timeout": f"{job_spec.seconds}s"} if job_spec.seconds else {}
    if job_spec.clustered:
        scheduling["restartJobOnWorkerRestart"] = True
    spec: dict[str, Any] = {"workerPoolSpecs": _pools(job_spec, settings)}
    if scheduling:
        spec["scheduling"] = scheduling
    create = f"gcloud ai custom-jobs create --region=REGION --display-name={job_spec.name}"
    notes = [
        f"Vertex AI: {create} --config=FILE",
        f"`runner` must be installed in the image: {settings.image}",
    ]
    return format_documents([spec], [*job_spec.header, *notes])


def _pools(job_spec: JobSpec, settings: Vertex) -> list[dict[str, Any]]:
    counts = dict(job_spec.roles)
    if "chief" not in counts:
        # The first pool has a single machine: one of the workers is the chief.
        counts |= {"chief": 1, "worker": counts["worker"] - 1}
    pools = [_pool(job_spec, settings, role, counts.get(role, 0)) for role in _POOLS]
    while not pools[-1]:
        pools.pop()
    return pools


def _pool(job_spec: JobSpec, settings: Vertex, role: str, count: int) -> dict[str, Any]:
    if not count:
        return {}
    machine: dict[str, Any] = {"machineType": settings.machine_type}
    if job_spec.gpus_of(role):
        machine |= {
            "acceleratorType": settings.accelerator_type,
            "acceleratorCount": job_spec.gpus_of(role),
        }
    return {
        "machineSpec": machine,
        "replicaCount": count,
        "containerSpec": {
            "imageUri": settings.image,
            "command": ["runner", "run"],
            "args": [
                f"--params_override={job_spec.experiment}",
                f"--model_dir={job_spec.model_dir}",
                *job_spec.arguments,
            ],
        },
    }
