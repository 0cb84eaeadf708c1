"""Manifests for Kubernetes: a ConfigMap with the experiment, and the job that runs it."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from orbit_runner.launch.deploy import kubernetes_jobs, kubernetes_tfjob
from orbit_runner.launch.deploy.job_spec import Order
from orbit_runner.launch.deploy.yaml_text import documents

SOURCE = "tf_config"
_FOLDER = "/etc/orbit-runner"
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

Write = Callable[[Order, Callable[[str], dict[str, Any]]], dict[str, Any]]
# What the job can be, and what writes it.
APIS: dict[str, Write] = {"jobset": kubernetes_jobs.job, "tfjob": kubernetes_tfjob.tfjob}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kubernetes:
    """What a cluster of Kubernetes is asked for.

    Attributes:
        image: The image, in which `runner` is installed.
        claims: (name of a PersistentVolumeClaim, where it is mounted); the first holds the run.
        namespace: The namespace; "" for the current one.
        api: A key of `APIS`.
        tolerations: Taints of nodes that the pods accept.
        node_selector: Labels that the nodes have to have.
        pull_secrets: Names of the secrets for the registry of the image.
        shared_memory: Size of `/dev/shm` in MiB; 0: no limit, and only where GPUs need it.
    """

    image: str
    claims: tuple[tuple[str, str], ...]
    namespace: str = ""
    api: str = "jobset"
    tolerations: tuple[Mapping[str, str], ...] = ()
    node_selector: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pull_secrets: tuple[str, ...] = ()
    shared_memory: int = 0


def parse_toleration(text: str) -> dict[str, str]:
    """Reads `KEY`, `KEY=VALUE`, `KEY:EFFECT` or `KEY=VALUE:EFFECT`, as in `kubectl taint`.

    Args:
        text: What the user wrote.

    Returns:
        A toleration of a pod; without an effect it is for all effects.

    Raises:
        ValueError: It has no key, or another effect.
    """
    rest, colon, effect = text.partition(":")
    key, equals, value = rest.partition("=")
    if not key or any(char.isspace() for char in text) or (colon and effect not in _EFFECTS):
        allowed = ", ".join(_EFFECTS)
        raise ValueError(f"got {text!r}, expected KEY[=VALUE][:EFFECT]; effects: {allowed}")
    found = {"key": key, "operator": "Equal" if equals else "Exists"}
    return found | ({"value": value} if equals else {}) | ({"effect": effect} if colon else {})


def parse_name(text: str) -> str:
    """Returns the name of a secret.

    Args:
        text: What the user wrote.

    Raises:
        ValueError: No object can have this name.
    """
    if not _NAME.fullmatch(text):
        raise ValueError(f"got {text!r}, expected lower case letters, digits, hyphens and dots")
    return text


def parse_label(text: str) -> tuple[str, str]:
    """Reads `KEY=VALUE`.

    Args:
        text: What the user wrote.

    Returns:
        Both.

    Raises:
        ValueError: It is not of that form.
    """
    key, equals, value = text.partition("=")
    if not key or not equals or any(char.isspace() for char in text):
        raise ValueError(f"got {text!r}, expected KEY=VALUE")
    return key, value


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
    """Writes the ConfigMap and the job.

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
    written = APIS[place.api](order, functools.partial(_template, order, place))
    job = {"apiVersion": written["apiVersion"], "kind": written["kind"], "metadata": metadata}
    notes = [
        f"Kubernetes ({job['kind']}, {job['apiVersion']}): kubectl apply -f FILE",
        f"All pods share the run's folder, so this claim is ReadWriteMany: {place.claims[0][0]}",
        f"The image has to hold `runner`: {place.image}",
    ]
    return documents([config_map, {**job, "spec": written["spec"]}], [*order.header, *notes])


def _template(order: Order, place: Kubernetes, role: str) -> dict[str, Any]:
    mounts = [{"name": "experiment", "mountPath": _FOLDER, "readOnly": True}]
    volumes: list[dict[str, Any]] = [{"name": "experiment", "configMap": {"name": order.name}}]
    for index, (claim, path) in enumerate(place.claims):
        mounts.append({"name": f"volume-{index}", "mountPath": path})
        volumes.append({"name": f"volume-{index}", "persistentVolumeClaim": {"claimName": claim}})
    if order.gpus_of(role) > 1 or place.shared_memory:
        # NCCL copies data from one GPU to the next there; a container gets 64 MiB by default.
        limit = {"sizeLimit": f"{place.shared_memory}Mi"} if place.shared_memory else {}
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})
        volumes.append({"name": "shared-memory", "emptyDir": {"medium": "Memory", **limit}})
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
            "terminationGracePeriodSeconds": order.grace,
            "containers": [container],
            "volumes": volumes,
            **dict(_scheduling(place)),
        },
    }


def _scheduling(place: Kubernetes) -> Iterator[tuple[str, Any]]:
    if place.tolerations:
        yield "tolerations", [dict(toleration) for toleration in place.tolerations]
    if place.node_selector:
        yield "nodeSelector", dict(place.node_selector)
    if place.pull_secrets:
        yield "imagePullSecrets", [{"name": name} for name in place.pull_secrets]


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
