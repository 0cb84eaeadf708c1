"""A `CustomJobSpec` of Vertex AI, for `gcloud ai custom-jobs create --config`.

The place of a pool says its role: the chief, workers, parameter servers, evaluators; a pool that is
not needed is left empty. Vertex AI sets `TF_CONFIG`, where there is more than one replica, with the
roles `chief`, `worker` and `ps`; evaluators are told that they are, and are not in the cluster.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from orbit_runner.launch.deploy.job_spec import Order
from orbit_runner.launch.deploy.yaml_text import documents

SOURCE = "tf_config"
BUCKETS = "/gcs/"  # Where Cloud Storage is mounted.
_POOLS = ("chief", "worker", "ps", "evaluator")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vertex:
    """What Vertex AI is asked for.

    Attributes:
        image: The image, in which `runner` is installed.
        machine_type: The machines.
        accelerator_type: Their GPUs; "" where there are none.
    """

    image: str
    machine_type: str
    accelerator_type: str = ""


def manifest(order: Order, place: Vertex) -> str:
    """Writes the job.

    Args:
        order: What to run.
        place: What Vertex AI is asked for.

    Returns:
        YAML.
    """
    scheduling: dict[str, Any] = {"timeout": f"{order.seconds}s"} if order.seconds else {}
    if order.clustered:
        scheduling["restartJobOnWorkerRestart"] = True
    spec: dict[str, Any] = {"workerPoolSpecs": _pools(order, place)}
    if scheduling:
        spec["scheduling"] = scheduling
    create = f"gcloud ai custom-jobs create --region=REGION --display-name={order.name}"
    notes = [
        f"Vertex AI: {create} --config=FILE",
        f"The image has to hold `runner`: {place.image}",
    ]
    return documents([spec], [*order.header, *notes])


def _pools(order: Order, place: Vertex) -> list[dict[str, Any]]:
    counts = dict(order.roles)
    if "chief" not in counts:
        # The first pool is one machine: one of the workers is the chief.
        counts |= {"chief": 1, "worker": counts["worker"] - 1}
    pools = [_pool(order, place, role, counts.get(role, 0)) for role in _POOLS]
    while not pools[-1]:
        pools.pop()
    return pools


def _pool(order: Order, place: Vertex, role: str, count: int) -> dict[str, Any]:
    if not count:
        return {}
    machine: dict[str, Any] = {"machineType": place.machine_type}
    if order.gpus_of(role):
        machine |= {
            "acceleratorType": place.accelerator_type,
            "acceleratorCount": order.gpus_of(role),
        }
    return {
        "machineSpec": machine,
        "replicaCount": count,
        "containerSpec": {
            "imageUri": place.image,
            "command": ["runner", "run"],
            "args": [
                f"--params_override={order.experiment}",
                f"--model_dir={order.model_dir}",
                *order.arguments,
            ],
        },
    }
