"""Manifests for Kubernetes, Slurm and Vertex AI: templates, filled in for an experiment or a sweep.

The templates are in `templates/manifests`. A field that does not depend on the experiment, such as
a time limit, has a value there or is a comment, for users to edit. Does not import TensorFlow.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import string
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from orbit_runner.config.errors import Problem
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.config.schema.strategies import STRATEGIES
from orbit_runner.config.serialize import flat_settings
from orbit_runner.distribute.cluster.from_config import configured_jobs
from orbit_runner.distribute.cluster.roles import RoleCounts, count_roles

# Target to the `runtime.cluster_source` of its members.
TARGETS = {"kubernetes": "tf_config", "slurm": "slurm", "vertex": "tf_config"}
# The targets with file locks, which the processes of a sweep need.
SWEEP_TARGETS = ("kubernetes", "slurm")

_TEMPLATES = Path(__file__).resolve().parents[1] / "templates" / "manifests"
_RUNS = "/runs"  # mount point on Kubernetes
_BUCKETS = "/gcs"  # mount point on Vertex AI
_FOLDER = "/etc/orbit-runner"  # where the pods of Kubernetes have the experiment
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LONGEST_NAME = 40  # Kubernetes adds role and index, and allows 63 characters.
_RESTARTS = 10
_PORT = 2222
_POOLS = ("chief", "worker", "ps", "evaluator")  # of Vertex AI


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """An experiment or a sweep, and the processes that run it."""

    name: str
    image: str  # of the containers; "" on Slurm
    model_dir: str
    roles: RoleCounts  # role to number of processes, in the order of ranks
    gpus: int  # per process that trains
    grace: int  # seconds from SIGTERM to SIGKILL
    document: str  # resolved config as YAML; of a sweep, the sweep file
    arguments: tuple[str, ...]  # further arguments of `runner run` or `runner sweep`
    header: tuple[str, ...]  # comments: origin and requirements
    is_sweep: bool = False  # whether each process is a `runner sweep` on the same directory

    @property
    def processes(self) -> int:
        """The number of all processes."""
        return sum(self.roles.values())

    @property
    def file_name(self) -> str:
        """The name of the file that has the document where it runs."""
        return "sweep.yaml" if self.is_sweep else "experiment.yaml"

    def gpus_of(self, role: str) -> int:
        """Returns the number of GPUs per process; 0 for coordinators and parameter servers."""
        return 0 if "ps" in self.roles and role in ("chief", "ps") else self.gpus


def manifest(target: str, job: Job) -> str:
    """Returns the text of a manifest; `job_problems` must have found no problem."""
    return {"kubernetes": _kubernetes, "slurm": _slurm, "vertex": _vertex}[target](job)


def default_model_dir(target: str, name: str) -> str:
    """Returns the run directory of a job, or "" if the user must choose it."""
    return {"kubernetes": f"{_RUNS}/{name}", "slurm": f"runs/{name}"}.get(target, "")


def job_name(text: str) -> str:
    """Returns a job name: lower-case letters, digits and hyphens, starting with a letter."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    name = name if name[:1].isalpha() else f"run-{name}"
    return name[:_LONGEST_NAME].strip("-")


def job_problems(target: str, name: str, image: str, model_dir: str) -> Iterator[Problem]:
    """Yields (flag, message) of values that a target cannot use."""
    if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        yield Problem(
            "--name",
            f"got {name!r:.60}, expected lowercase letters, digits and hyphens, starting with a "
            f"letter, at most {_LONGEST_NAME} characters",
            code="wrong-type",
        )
    if target != "slurm" and (not image or any(char.isspace() for char in image)):
        actual = f"got {image!r:.60}" if image else "is not set"
        yield Problem(
            "--image",
            f"{actual}; expected a container image in which `runner` is installed",
            code="wrong-type",
        )
    root, what = {
        "kubernetes": (_RUNS, f"{_RUNS}/…, a directory of the claim, which is mounted at {_RUNS}"),
        "vertex": (_BUCKETS, f"{_BUCKETS}/BUCKET/…, a directory that all machines share"),
    }.get(target, ("", ""))
    path = PurePosixPath(model_dir)
    if root and (".." in path.parts or PurePosixPath(root) not in path.parents):
        actual = f"got {model_dir!r:.200}" if model_dir else "is not set"
        yield Problem("--model_dir", f"{actual}; expected {what}", code="wrong-type")


def config_problems(config: ExperimentConfig, target: str) -> Iterator[Problem]:
    """Yields (dotted path, message) of settings that the manifests of a target do not support."""
    runtime = config.runtime
    source = TARGETS[target]
    strategy = runtime.distribution_strategy
    if runtime.traits.uses_tpu:
        allowed = [name for name, traits in STRATEGIES.items() if not traits.uses_tpu]
        message = f"TPUs are not supported\nallowed: {', '.join(allowed)}"
        yield Problem("runtime.distribution_strategy", message, code="not-supported")
    elif runtime.traits.is_clustered and not runtime.num_workers:
        yield Problem("runtime.num_workers", "is not set: use --workers=N", code="not-set")
    elif runtime.num_workers == 1 and runtime.traits.synchronous_workers:
        yield Problem(
            "runtime.num_workers",
            f"got 1 under `{strategy}`, which requires several workers\n"
            "allowed: 2 or more; or set runtime.distribution_strategy: mirrored",
            code="not-allowed",
        )
    elif runtime.num_evaluators and not runtime.traits.is_clustered:
        yield Problem(
            "runtime.num_evaluators",
            f"got 1 under `{strategy}`, which runs in one process\n"
            "run a second job with --mode=continuous_eval in the same run directory",
            code="not-supported",
        )
    if runtime.uses_all_gpus:
        yield Problem(
            "runtime.num_gpus",
            "got -1, but a manifest requires the number of GPUs: 0 or more",
            code="out-of-range",
        )
    if configured_jobs(runtime):
        field = "worker_hosts" if runtime.worker_hosts else "cluster"
        yield Problem(
            f"runtime.{field}", "must be unset: the cluster assigns the hosts", code="no-effect"
        )
    if runtime.remote_cluster:
        yield Problem(
            "runtime.remote_cluster",
            "must be unset: the cluster assigns the servers",
            code="no-effect",
        )
    if runtime.cluster_source not in ("auto", source):
        yield Problem(
            "runtime.cluster_source",
            f"got `{runtime.cluster_source}`, allowed: auto, {source}",
            code="not-allowed",
        )


def roles_of(runtime: RuntimeConfig) -> RoleCounts:
    """Returns role to number of processes; `config_problems` must have found no problem."""
    if not runtime.traits.is_clustered:
        return {"worker": 1}
    servers = runtime.parameter_servers
    servers += 1 if servers else 0  # The chief.
    return count_roles(runtime, runtime.num_workers + servers + runtime.num_evaluators, "manifest")


def requirements(config: ExperimentConfig) -> Iterator[str]:
    """Yields the paths and modules that the experiment needs where it runs."""
    for path, value in flat_settings(config).items():
        if value and path.rpartition(".")[2] in ("data_dir", "input_path", "init_checkpoint"):
            yield f"{path}: {value}"
    yield from (f"imports: {name}" for name in config.imports)


def _slurm(job: Job) -> str:
    nodes = 1 if job.is_sweep else job.roles["worker"]
    directives = [f"nodes={nodes}", f"ntasks={1 if job.is_sweep else job.processes}"]
    directives += [f"gpus-per-task={job.gpus}"] if job.gpus else []
    if job.is_sweep:
        directives += [f"array=0-{job.processes - 1}", "output=%x-%A_%a.log"]
        command = ["runner", "sweep", '"$file"']
    else:
        directives += ["output=%x-%j.log"]
        command = ["runner", "run", '--experiment="$file"']
    end = "END_OF_EXPERIMENT"
    while end in job.document:
        end += "_"
    # Each element of an array has a copy of the sweep file. For one of the elements, $SLURM_JOB_ID
    # is the number of the whole array.
    file = "$(mktemp) && trap 'rm \"$file\"' EXIT" if job.is_sweep else '"$folder/experiment.yaml"'
    return _fill(
        "slurm.sh",
        name=job.name,
        directives="\n".join(f"#SBATCH --{text}" for text in directives),
        grace=job.grace,
        header=_comment(job.header),
        folder=shlex.quote(job.model_dir),
        file=file,
        end=end,
        document=job.document,
        command=" ".join([*command, '--model_dir="$folder"', *map(shlex.quote, job.arguments)]),
        job="${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" if job.is_sweep else "$SLURM_JOB_ID",
    )


def _kubernetes(job: Job) -> str:
    values = {
        "header": _comment(job.header),
        "name": job.name,
        "file": job.file_name,
        "document": _block(job.document, 4),
    }
    if job.is_sweep or job.processes == 1:
        # Kubernetes counts the failures of all pods of a job.
        pods = _pods(job, "worker", retries=_RESTARTS * job.processes)
        return _fill("kubernetes_job.yaml", **values, pods=textwrap.indent(pods, "  "))
    roles = [
        f"  - name: {role}\n    replicas: 1\n    template:\n      spec:\n"
        + textwrap.indent(_pods(job, role, retries=0), " " * 8)
        for role in job.roles
    ]
    leading = [r for r in job.roles if r in ("chief", "evaluator")] if "ps" in job.roles else []
    return _fill(
        "kubernetes_jobset.yaml", **values, leading=", ".join(leading), roles="\n".join(roles)
    )


def _pods(job: Job, role: str, *, retries: int) -> str:
    """Returns the spec of the Kubernetes job of a role."""
    file = f"{_FOLDER}/{job.file_name}"
    arguments = [file if job.is_sweep else f"--experiment={file}", f"--model_dir={job.model_dir}"]
    # Kubernetes replaces `$(NAME)` with the value of a variable, and `$$` with `$`.
    escaped = [text.replace("$", "$$") for text in (*arguments, *job.arguments)]
    gpus = job.gpus_of(role)
    text = _fill(
        "kubernetes_pods.yaml",
        count=job.roles[role],
        retries=retries,
        grace=job.grace,
        image=_quoted(job.image),
        command="[runner, sweep]" if job.is_sweep else "[runner, run]",
        arguments=f"[{', '.join(map(_quoted, escaped))}]",
        tf_config="{}" if job.is_sweep or job.processes == 1 else _tf_config(job, role),
        limits=f'nvidia.com/gpu: "{gpus}"' if gpus else "",
        folder=_FOLDER,
        runs=_RUNS,
        name=job.name,
    )
    return text.rstrip("\n")


def _tf_config(job: Job, role: str) -> str:
    """Returns `TF_CONFIG` of the pods of a role, in which Kubernetes inserts their index."""
    cluster = {
        name: [f"{job.name}-{name}-0-{index}.{job.name}:{_PORT}" for index in range(count)]
        for name, count in job.roles.items()
        if name != "evaluator"  # The evaluator reads checkpoints and does not communicate.
    }
    # `cloud`: host names may not be resolvable yet when a member starts.
    value = {"cluster": cluster, "task": {"type": role, "index": "INDEX"}, "environment": "cloud"}
    return json.dumps(value).replace('"INDEX"', "$(TASK_INDEX)")


def _vertex(job: Job) -> str:
    counts = dict(job.roles)
    if "chief" not in counts:
        # The first pool has a single machine: one of the workers is the chief.
        counts |= {"chief": 1, "worker": counts["worker"] - 1}
    pools = [
        f"{{machineSpec: {{{_machine(job, role)}}}, replicaCount: {counts[role]}, "
        "containerSpec: *container}"
        if counts.get(role)
        else "{}"
        for role in _POOLS[1:]
    ]
    while pools and pools[-1] == "{}":
        pools.pop()
    return _fill(
        "vertex.yaml",
        header=_comment(job.header),
        name=job.name,
        machine=_machine(job, "chief"),
        image=_quoted(job.image),
        experiment=_block(f"--params_override={job.document}", 6),
        arguments="\n".join(
            f"    - {_quoted(text)}" for text in (f"--model_dir={job.model_dir}", *job.arguments)
        ),
        pools="".join(f"\n- {pool}" for pool in pools),
        clustered="true" if job.processes > 1 else "false",
    )


def _machine(job: Job, role: str) -> str:
    gpus = job.gpus_of(role)
    accelerator = f", acceleratorType: NVIDIA_TESLA_T4, acceleratorCount: {gpus}"
    return "machineType: n1-standard-8" + (accelerator if gpus else "")


def _fill(template: str, **values: Any) -> str:
    text = (_TEMPLATES / template).read_text(encoding="utf-8")
    return string.Template(text).substitute(values)


def _comment(lines: Iterable[str]) -> str:
    """Returns lines as comments. Splits multi-line text and replaces unprintable characters."""
    parts = [part for line in lines for part in line.splitlines()]
    return "\n".join(f"# {''.join(c if c.isprintable() else '?' for c in part)}" for part in parts)


def _quoted(text: str) -> str:
    """Returns a text as YAML on one line."""
    return yaml.dump(text, default_style='"', width=float("inf")).strip()


def _block(text: str, indent: int) -> str:
    """Returns a text as YAML: a block if it may be one, otherwise one line."""
    lines = text.removesuffix("\n").split("\n")
    if not all(map(str.isprintable, lines)) or not lines[-1].strip() or lines[0][:1] in ("", " "):
        return _quoted(text)
    return "|\n" + "\n".join(f"{' ' * indent}{line}" for line in lines)
