"""The targets of `runner manifest`, and the flags of each."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from orbit_runner.config.errors import ConfigError, Problem
from orbit_runner.launch.deploy import kubernetes, slurm, slurm_array, vertex
from orbit_runner.launch.deploy.job_spec import JobSpec, parse_mebibytes

AddFlag = Callable[..., Any]
WriteManifest = Callable[[JobSpec, argparse.Namespace], str]
_IMAGE = "an image in which `runner` is installed"


def _raise_problems(*problems: tuple[str, str]) -> None:
    found = [Problem(flag, message) for flag, message in problems if message]
    if found:
        raise ConfigError(found)


def _unset_problem(value: object, what: str) -> str:
    return "" if value else f"is not set; expected {what}"


def _parse_each(flag: str, texts: Sequence[str], parse: Callable[[str], Any]) -> tuple[Any, ...]:
    try:
        return tuple(parse(text) for text in texts)
    except ValueError as error:
        raise ConfigError([Problem(flag, str(error))]) from None


def _add_kubernetes(add: AddFlag) -> None:
    add("--image", metavar="IMAGE", help="container image in which `runner` is installed")
    add(
        "--volume_claim",
        action="append",
        metavar="CLAIM[:PATH]",
        help="PersistentVolumeClaim and its mount path; may be repeated; the first one, by default "
        "at /runs, holds the run directory unless --model_dir is below another",
    )
    add("--namespace", default="", metavar="NAME", help="namespace; by default the current one")
    add("--cpus", metavar="N", help="CPU cores per process")
    add("--memory", metavar="SIZE", help="memory per process, such as 16Gi")
    add(
        "--api",
        default="jobset",
        choices=tuple(kubernetes.APIS),
        help="jobset: a JobSet, or a Job if there is one process; tfjob: a Kubeflow TFJob",
    )
    add(
        "--toleration",
        action="append",
        default=[],
        metavar="KEY[=VALUE][:EFFECT]",
        help="taint of nodes that pods tolerate; may be repeated",
    )
    add(
        "--node_selector",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="label that nodes must have; may be repeated",
    )
    add(
        "--pull_secret",
        action="append",
        default=[],
        metavar="NAME",
        help="pull secret for the registry of the image; may be repeated",
    )
    add(
        "--shared_memory",
        metavar="SIZE",
        help="size of /dev/shm, such as 16Gi; by default unlimited in pods with several GPUs",
    )


def _write_kubernetes(job_spec: JobSpec, flags: argparse.Namespace) -> str:
    _raise_problems(
        ("--image", _unset_problem(flags.image, _IMAGE)),
        ("--volume_claim", _unset_problem(flags.volume_claim, "a claim that all pods share")),
    )
    try:
        claims = kubernetes.parse_claims(flags.volume_claim)
    except ValueError as error:
        raise ConfigError([Problem("--volume_claim", str(error))]) from None
    if job_spec.is_sweep and flags.api != "jobset":
        _raise_problems(
            ("--api", f"got {flags.api!r}, but a sweep is an indexed Job; remove the flag")
        )
    job_spec = job_spec.replace_model_dir(job_spec.model_dir or f"{claims[0][1]}/{job_spec.name}")
    _raise_problems(("--model_dir", kubernetes.model_dir_problem(job_spec.model_dir, claims)))
    settings = kubernetes.Kubernetes(
        image=flags.image,
        claims=claims,
        namespace=flags.namespace,
        api=flags.api,
        tolerations=_parse_each("--toleration", flags.toleration, kubernetes.parse_toleration),
        node_selector=dict(
            _parse_each("--node_selector", flags.node_selector, kubernetes.parse_label)
        ),
        pull_secrets=_parse_each("--pull_secret", flags.pull_secret, kubernetes.parse_name),
        shared_memory=parse_mebibytes(flags.shared_memory or "0Mi") or 0,
    )
    return kubernetes.manifest(job_spec, settings)


def _add_slurm(add: AddFlag) -> None:
    add("--nodes", metavar="N", help="number of nodes; by default one per worker")
    add(
        "--partition",
        default="",
        metavar="NAME",
        help="partition; by default the cluster's default partition",
    )
    add("--account", default="", metavar="NAME", help="account to charge for the job")
    add("--cpus", metavar="N", help="CPU cores per process")
    add("--memory", metavar="SIZE", help="memory per process, such as 16Gi")


def _write_slurm(job_spec: JobSpec, flags: argparse.Namespace) -> str:
    job_spec = job_spec.replace_model_dir(job_spec.model_dir or f"runs/{job_spec.name}")
    nodes = int(flags.nodes or 0)
    if job_spec.is_sweep and nodes > 1:
        _raise_problems(
            ("--nodes", f"got {nodes}, allowed: 1, because an array element is one process")
        )
    if nodes > job_spec.processes:
        _raise_problems(
            (
                "--nodes",
                f"got {nodes}, expected at most {job_spec.processes}, the number of processes",
            )
        )
    settings = slurm.Slurm(nodes=nodes, partition=flags.partition, account=flags.account)
    write = slurm_array.manifest if job_spec.is_sweep else slurm.manifest
    return write(job_spec, settings)


def _add_vertex(add: AddFlag) -> None:
    add("--image", metavar="IMAGE", help="container image in which `runner` is installed")
    add(
        "--machine_type",
        default="n1-standard-8",
        metavar="TYPE",
        help="machine type of all machines",
    )
    add("--accelerator_type", default="", metavar="TYPE", help="GPU type, such as NVIDIA_TESLA_T4")


def _write_vertex(job_spec: JobSpec, flags: argparse.Namespace) -> str:
    folder = f"a directory that all machines share: {vertex.BUCKETS}BUCKET/…"
    _raise_problems(
        ("--image", _unset_problem(flags.image, _IMAGE)),
        ("--model_dir", _unset_problem(job_spec.model_dir, folder)),
        (
            "--accelerator_type",
            _unset_problem(flags.accelerator_type or not job_spec.gpus, "the GPU type"),
        ),
        (
            "--gpus_per_worker",
            _unset_problem(job_spec.gpus or not flags.accelerator_type, "the number of GPUs"),
        ),
    )
    if not job_spec.model_dir.startswith(vertex.BUCKETS):
        _raise_problems(("--model_dir", f"got {job_spec.model_dir!r}, expected {folder}"))
    settings = vertex.Vertex(
        image=flags.image,
        machine_type=flags.machine_type,
        accelerator_type=flags.accelerator_type,
    )
    return vertex.manifest(job_spec, settings)


ADD_FLAGS: dict[str, Callable[[AddFlag], None]] = {
    "kubernetes": _add_kubernetes,
    "slurm": _add_slurm,
    "vertex": _add_vertex,
}
# The targets that can run a sweep: its processes need a directory with file locks.
SWEEP_TARGETS = ("kubernetes", "slurm")
# Target to its `runtime.cluster_source` and the function that writes its manifest.
TARGETS: dict[str, tuple[str, WriteManifest]] = {
    "kubernetes": (kubernetes.SOURCE, _write_kubernetes),
    "slurm": (slurm.SOURCE, _write_slurm),
    "vertex": (vertex.SOURCE, _write_vertex),
}
