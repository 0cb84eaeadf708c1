"""Manifests for Kubernetes: a ConfigMap with the experiment or sweep, and the job that runs it."""

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
# Type of job to the function that builds it.
APIS: dict[str, Write] = {"jobset": kubernetes_jobs.job, "tfjob": kubernetes_tfjob.tfjob}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kubernetes:
    """Settings of a Kubernetes manifest."""

    image: str  # must contain `runner`
    claims: tuple[tuple[str, str], ...]  # (claim, mount path); the first holds the run
    namespace: str = ""  # "" for the current one
    api: str = "jobset"  # a key of `APIS`
    tolerations: tuple[Mapping[str, str], ...] = ()  # for taints of nodes
    node_selector: Mapping[str, str] = dataclasses.field(default_factory=dict)  # labels of nodes
    pull_secrets: tuple[str, ...] = ()  # for the registry of the image
    shared_memory: int = 0  # MiB of `/dev/shm`; 0: unlimited, and only with several GPUs


def parse_toleration(text: str) -> dict[str, str]:
    """Returns a toleration for `KEY`, `KEY=VALUE`, `KEY:EFFECT` or `KEY=VALUE:EFFECT`.

    The format is that of `kubectl taint`. Without an effect, the toleration applies to all effects.
    Raises `ValueError` if there is no key or the effect is unknown.
    """
    rest, colon, effect = text.partition(":")
    key, equals, value = rest.partition("=")
    if not key or any(char.isspace() for char in text) or (colon and effect not in _EFFECTS):
        allowed = ", ".join(_EFFECTS)
        raise ValueError(f"got {text!r}, expected KEY[=VALUE][:EFFECT]; effects: {allowed}")
    found = {"key": key, "operator": "Equal" if equals else "Exists"}
    return found | ({"value": value} if equals else {}) | ({"effect": effect} if colon else {})


def parse_name(text: str) -> str:
    """Returns the name of a secret; raises `ValueError` if no object can have this name."""
    if not _NAME.fullmatch(text):
        raise ValueError(f"got {text!r}, expected lowercase letters, digits, hyphens and dots")
    return text


def parse_label(text: str) -> tuple[str, str]:
    """Returns (key, value) of `KEY=VALUE`; raises `ValueError` for any other text."""
    key, equals, value = text.partition("=")
    if not key or not equals or any(char.isspace() for char in text):
        raise ValueError(f"got {text!r}, expected KEY=VALUE")
    return key, value


def parse_claims(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Returns (claim, path) for each `CLAIM` or `CLAIM:/PATH`.

    Only the first claim can omit the path, which is then `/runs`. Raises `ValueError` if a path is
    missing, relative or used twice.
    """
    claims: list[tuple[str, str]] = []
    for text in texts:
        claim, colon, path = text.partition(":")
        path = path if colon else ("" if claims else "/runs")
        if not claim or not path.startswith("/") or path == "/":
            raise ValueError(f"got {text!r}, expected CLAIM:/PATH")
        if path in [taken for _, taken in claims]:
            raise ValueError(f"got {text!r}, but another claim is mounted at {path}")
        claims.append((claim, path))
    return tuple(claims)


def folder_problem(model_dir: str, claims: Sequence[tuple[str, str]]) -> str:
    """Returns why a run directory is not on a volume, or "" if it is.

    `claims` are (claim, mount path).
    """
    folder = PurePosixPath(model_dir)
    if ".." not in folder.parts and any(PurePosixPath(p) in folder.parents for _, p in claims):
        return ""
    return f"got {model_dir!r}, expected a directory below {' or '.join(p for _, p in claims)}"


def manifest(order: Order, place: Kubernetes) -> str:
    """Returns the ConfigMap and the job as YAML for `kubectl apply -f -`."""
    metadata = {"name": order.name} | ({"namespace": place.namespace} if place.namespace else {})
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {order.file_name: order.experiment},
    }
    written = APIS[place.api](order, functools.partial(_template, order, place))
    job = {"apiVersion": written["apiVersion"], "kind": written["kind"], "metadata": metadata}
    notes = [
        f"Kubernetes ({job['kind']}, {job['apiVersion']}): kubectl apply -f FILE",
        "All pods share the run directory, so this claim must be ReadWriteMany: "
        f"{place.claims[0][0]}",
        f"`runner` must be installed in the image: {place.image}",
    ]
    return documents([config_map, {**job, "spec": written["spec"]}], [*order.header, *notes])


def _template(order: Order, place: Kubernetes, role: str) -> dict[str, Any]:
    mounts = [{"name": "experiment", "mountPath": _FOLDER, "readOnly": True}]
    volumes: list[dict[str, Any]] = [{"name": "experiment", "configMap": {"name": order.name}}]
    for index, (claim, path) in enumerate(place.claims):
        mounts.append({"name": f"volume-{index}", "mountPath": path})
        volumes.append({"name": f"volume-{index}", "persistentVolumeClaim": {"claimName": claim}})
    if order.gpus_of(role) > 1 or place.shared_memory:
        # NCCL uses it to copy data between GPUs; a container gets 64 MiB by default.
        limit = {"sizeLimit": f"{place.shared_memory}Mi"} if place.shared_memory else {}
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})
        volumes.append({"name": "shared-memory", "emptyDir": {"medium": "Memory", **limit}})
    file = f"{_FOLDER}/{order.file_name}"
    first = file if order.is_sweep else f"--experiment={file}"
    arguments = [first, f"--model_dir={order.model_dir}", *order.arguments]
    container: dict[str, Any] = {
        "name": "tensorflow",
        "image": place.image,
        "command": ["runner", "sweep" if order.is_sweep else "run"],
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
    # Kubernetes replaces `$(NAME)` with the value of a variable, and `$$` with `$`.
    return text.replace("$", "$$")


def _resources(order: Order, role: str) -> Iterator[tuple[str, str]]:
    if order.cpus:
        yield "cpu", str(order.cpus)
    if order.memory:
        yield "memory", f"{order.memory}Mi"
    if order.gpus_of(role):
        yield "nvidia.com/gpu", str(order.gpus_of(role))
