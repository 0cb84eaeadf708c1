"""Manifests for Kubernetes: a ConfigMap with the experiment or sweep, and the job that runs it."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from orbit_runner.launch.deploy import kubernetes_jobs, kubernetes_tfjob
from orbit_runner.launch.deploy.job_spec import JobSpec
from orbit_runner.launch.deploy.yaml_text import format_documents

SOURCE = "tf_config"
_FOLDER = "/etc/orbit-runner"
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

BuildJob = Callable[[JobSpec, Callable[[str], dict[str, Any]]], dict[str, Any]]
# Type of job to the function that builds it.
APIS: dict[str, BuildJob] = {"jobset": kubernetes_jobs.job, "tfjob": kubernetes_tfjob.tfjob}


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


def model_dir_problem(model_dir: str, claims: Sequence[tuple[str, str]]) -> str:
    """Returns why a run directory is not on a volume, or "" if it is.

    `claims` are (claim, mount path).
    """
    folder = PurePosixPath(model_dir)
    if ".." not in folder.parts and any(PurePosixPath(p) in folder.parents for _, p in claims):
        return ""
    return f"got {model_dir!r}, expected a directory below {' or '.join(p for _, p in claims)}"


def manifest(job_spec: JobSpec, settings: Kubernetes) -> str:
    """Returns the ConfigMap and the job as YAML for `kubectl apply -f -`."""
    metadata = {"name": job_spec.name} | (
        {"namespace": settings.namespace} if settings.namespace else {}
    )
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {job_spec.file_name: job_spec.experiment},
    }
    written = APIS[settings.api](job_spec, functools.partial(_pod_template, job_spec, settings))
    job = {"apiVersion": written["apiVersion"], "kind": written["kind"], "metadata": metadata}
    notes = [
        f"Kubernetes ({job['kind']}, {job['apiVersion']}): kubectl apply -f FILE",
        "All pods share the run directory, so this claim must be ReadWriteMany: "
        f"{settings.claims[0][0]}",
        f"`runner` must be installed in the image: {settings.image}",
    ]
    return format_documents(
        [config_map, {**job, "spec": written["spec"]}], [*job_spec.header, *notes]
    )


def _pod_template(job_spec: JobSpec, settings: Kubernetes, role: str) -> dict[str, Any]:
    mounts = [{"name": "experiment", "mountPath": _FOLDER, "readOnly": True}]
    volumes: list[dict[str, Any]] = [{"name": "experiment", "configMap": {"name": job_spec.name}}]
    for index, (claim, path) in enumerate(settings.claims):
        mounts.append({"name": f"volume-{index}", "mountPath": path})
        volumes.append({"name": f"volume-{index}", "persistentVolumeClaim": {"claimName": claim}})
    if job_spec.gpus_of(role) > 1 or settings.shared_memory:
        # NCCL uses it to copy data between GPUs; a container gets 64 MiB by default.
        limit = {"sizeLimit": f"{settings.shared_memory}Mi"} if settings.shared_memory else {}
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})
        volumes.append({"name": "shared-memory", "emptyDir": {"medium": "Memory", **limit}})
    file = f"{_FOLDER}/{job_spec.file_name}"
    first = file if job_spec.is_sweep else f"--experiment={file}"
    arguments = [first, f"--model_dir={job_spec.model_dir}", *job_spec.arguments]
    container: dict[str, Any] = {
        "name": "tensorflow",
        "image": settings.image,
        "command": ["runner", "sweep" if job_spec.is_sweep else "run"],
        "args": [_escape(text) for text in arguments],
        "volumeMounts": mounts,
    }
    resources = dict(_resources(job_spec, role))
    if resources:
        container["resources"] = {"requests": resources, "limits": dict(resources)}
    return {
        "metadata": {"annotations": {"sidecar.istio.io/inject": "false"}},
        "spec": {
            "terminationGracePeriodSeconds": job_spec.grace,
            "containers": [container],
            "volumes": volumes,
            **dict(_scheduling_fields(settings)),
        },
    }


def _scheduling_fields(settings: Kubernetes) -> Iterator[tuple[str, Any]]:
    if settings.tolerations:
        yield "tolerations", [dict(toleration) for toleration in settings.tolerations]
    if settings.node_selector:
        yield "nodeSelector", dict(settings.node_selector)
    if settings.pull_secrets:
        yield "imagePullSecrets", [{"name": name} for name in settings.pull_secrets]


def _escape(text: str) -> str:
    # Kubernetes replaces `$(NAME)` with the value of a variable, and `$$` with `$`.
    return text.replace("$", "$$")


def _resources(job_spec: JobSpec, role: str) -> Iterator[tuple[str, str]]:
    if job_spec.cpus:
        yield "cpu", str(job_spec.cpus)
    if job_spec.memory:
        yield "memory", f"{job_spec.memory}Mi"
    if job_spec.gpus_of(role):
        yield "nvidia.com/gpu", str(job_spec.gpus_of(role))
