"""A `TFJob` of Kubeflow's Training Operator, version 1, and a ConfigMap with the experiment.

Names and meanings are those of the operator's API (`kubeflow.org/v1`). It sets `TF_CONFIG` in the
container called `tensorflow`, where there is more than one pod. Under the restart policy `ExitCode`
it starts pods anew that end with 128 or more: killed, evicted, or a lost member (138).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

from orbit_runner.runtime.manifests.order import Order
from orbit_runner.runtime.manifests.text import documents

SOURCE = "tf_config"
_FOLDER = "/etc/orbit-runner"
_ROLES = {"chief": "Chief", "ps": "PS", "worker": "Worker", "evaluator": "Evaluator"}
_WEEK, _GRACE = 7 * 24 * 3600, 120


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kubernetes:
    """What a cluster of Kubernetes is asked for.

    Attributes:
        image: The image, in which `runner` is installed.
        claims: (name of a PersistentVolumeClaim, where it is mounted); the first holds the run.
        namespace: The namespace; "" for the current one.
    """

    image: str
    claims: tuple[tuple[str, str], ...]
    namespace: str = ""


def parse_claims(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Reads `CLAIM` and `CLAIM:/PATH`; the first claim alone is mounted at `/runs`.

    Args:
        texts: What the user wrote.

    Returns:
        (claim, path) of each.

    Raises:
        ValueError: One of them has no path, or one that is relative or taken.
    """
    claims: list[tuple[str, str]] = []
    for text in texts:
        claim, colon, path = text.partition(":")
        path = path if colon else ("" if claims else "/runs")
        if not claim or not path.startswith("/") or path == "/":
            raise ValueError(f"got {text!r}, expected CLAIM:/PATH")
        if path in [taken for _, taken in claims]:
            raise ValueError(f"got {text!r}, and {path} is another claim's")
        claims.append((claim, path))
    return tuple(claims)


def folder_problem(model_dir: str, claims: Sequence[tuple[str, str]]) -> str:
    """Returns why the folder of a run is not on a volume; "" if it is.

    Args:
        model_dir: The folder.
        claims: What is mounted.
    """
    folder = PurePosixPath(model_dir)
    if ".." not in folder.parts and any(PurePosixPath(p) in folder.parents for _, p in claims):
        return ""
    return f"got {model_dir!r}, expected a folder below {' or '.join(p for _, p in claims)}"


def manifest(order: Order, place: Kubernetes) -> str:
    """Writes the ConfigMap and the TFJob.

    Args:
        order: What to run.
        place: What the cluster is asked for.

    Returns:
        YAML for `kubectl apply -f -`.
    """
    metadata = {"name": order.name} | ({"namespace": place.namespace} if place.namespace else {})
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"experiment.yaml": order.experiment},
    }
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": metadata,
        "spec": _spec(order, place),
    }
    notes = [
        "Kubernetes with Kubeflow's Training Operator (TFJob v1): kubectl apply -f FILE",
        f"All pods share the run's folder, so this claim is ReadWriteMany: {place.claims[0][0]}",
        f"The image has to hold `runner`: {place.image}",
    ]
    return documents([config_map, job], [*order.header, *notes])


def _spec(order: Order, place: Kubernetes) -> dict[str, Any]:
    policy: dict[str, Any] = {
        # An evaluator ends by itself, after the last checkpoint; pods that still ran when the job
        # is done would be stopped.
        "cleanPodPolicy": "None" if "evaluator" in order.roles else "Running",
        "backoffLimit": order.restarts,
        "ttlSecondsAfterFinished": _WEEK,
    }
    if order.seconds:
        policy["activeDeadlineSeconds"] = order.seconds
    spec: dict[str, Any] = {"runPolicy": policy}
    if "chief" not in order.roles:
        # Else the job is done with worker 0, and the others are stopped on their last steps.
        spec["successPolicy"] = "AllWorkers"
    spec["tfReplicaSpecs"] = {
        _ROLES[role]: {
            "replicas": count,
            "restartPolicy": "ExitCode",
            "template": _template(order, place, role),
        }
        for role, count in order.roles.items()
    }
    return spec


def _template(order: Order, place: Kubernetes, role: str) -> dict[str, Any]:
    mounts = [{"name": "experiment", "mountPath": _FOLDER, "readOnly": True}]
    volumes: list[dict[str, Any]] = [{"name": "experiment", "configMap": {"name": order.name}}]
    for index, (claim, path) in enumerate(place.claims):
        mounts.append({"name": f"volume-{index}", "mountPath": path})
        volumes.append({"name": f"volume-{index}", "persistentVolumeClaim": {"claimName": claim}})
    if order.gpus_of(role) > 1:
        # NCCL hands data from one GPU to the next there; containers get 64 MiB unless told.
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})
        volumes.append({"name": "shared-memory", "emptyDir": {"medium": "Memory"}})
    folders = (f"--experiment={_FOLDER}/experiment.yaml", f"--model_dir={order.model_dir}")
    arguments = [*folders, *order.arguments]
    container: dict[str, Any] = {
        "name": "tensorflow",
        "image": place.image,
        "command": ["runner", "run"],
        "args": [_literal(text) for text in arguments],
        "volumeMounts": mounts,
    }
    resources = dict(_resources(order, role))
    if resources:
        container["resources"] = {"requests": resources, "limits": dict(resources)}
    return {
        "metadata": {"annotations": {"sidecar.istio.io/inject": "false"}},
        "spec": {
            "terminationGracePeriodSeconds": _GRACE,
            "containers": [container],
            "volumes": volumes,
        },
    }


def _literal(text: str) -> str:
    # Kubernetes puts the value of a variable in place of `$(NAME)`, and `$` in place of `$$`.
    return text.replace("$", "$$")


def _resources(order: Order, role: str) -> Iterator[tuple[str, str]]:
    if order.cpus:
        yield "cpu", str(order.cpus)
    if order.memory:
        yield "memory", f"{order.memory}Mi"
    if order.gpus_of(role):
        yield "nvidia.com/gpu", str(order.gpus_of(role))
