"""What all manifests have in common: the processes, and what each of them runs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.config.serialize import flat_settings
from orbit_runner.distribute.cluster.from_config import configured_jobs
from orbit_runner.distribute.cluster.role_counts import RoleCounts, count_roles

Problems = Iterator[tuple[str, str]]
_MEMORY = re.compile(r"([0-9]+)(Mi|Gi)")
_TIME = re.compile(r"(?:([0-9]+)-)?([0-9]+)(?::([0-9]{2}))?(?::([0-9]{2}))?")
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LONGEST_NAME = 40  # Kubernetes adds role and index, and allows 63 characters.


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobSpec:
    """An experiment or a sweep, and the processes that run it."""

    name: str
    roles: RoleCounts  # role to number of processes, in the order of ranks
    clustered: bool  # whether processes use a description of the cluster
    gpus: int  # per process that trains
    experiment: str  # resolved config as YAML; of a sweep, the sweep file
    model_dir: str
    is_sweep: bool = False  # whether each process is a `runner sweep` on the same directory
    arguments: tuple[str, ...] = ()  # further arguments of `runner run` or `runner sweep`
    cpus: int = 0  # per process; 0 for the default of the cluster
    memory: int = 0  # MiB per process; 0 for the default of the cluster
    seconds: int = 0  # time limit; 0 for none
    restarts: int = 0  # how often lost members are replaced
    grace: int = 120  # seconds from SIGTERM to SIGKILL
    header: tuple[str, ...] = ()  # comments: origin and requirements of the manifest

    @property
    def processes(self) -> int:
        """The number of all processes."""
        return sum(self.roles.values())

    @property
    def file_name(self) -> str:
        """The name of the file that has the experiment or the sweep where it runs."""
        return "sweep.yaml" if self.is_sweep else "experiment.yaml"

    def replace_model_dir(self, model_dir: str) -> JobSpec:
        """Returns the same job with another run directory."""
        return dataclasses.replace(self, model_dir=model_dir)

    def gpus_of(self, role: str) -> int:
        """Returns the number of GPUs per process; 0 for coordinators and parameter servers."""
        idle = "ps" in self.roles and role in ("chief", "ps")
        return 0 if idle else self.gpus


def roles_of(runtime: RuntimeConfig) -> RoleCounts:
    """Returns role to number of processes; `manifest_problems` must have found no problem."""
    if not runtime.traits.is_clustered:
        return {"worker": 1}
    servers = runtime.parameter_servers
    servers += 1 if servers else 0  # The chief.
    return count_roles(runtime, runtime.num_workers + servers + runtime.num_evaluators, "manifest")


def manifest_problems(config: ExperimentConfig, source: str) -> Problems:
    """Yields (dotted path, message) of settings that no manifest supports.

    `source` is the `runtime.cluster_source` that the cluster will have.
    """
    runtime = config.runtime
    if runtime.distribution_strategy == "tpu":
        allowed = "off, one_device, mirrored, multi_worker_mirrored, parameter_server"
        yield "runtime.distribution_strategy", f"TPUs are not supported\nallowed: {allowed}"
    elif runtime.traits.is_clustered:
        yield from _number_problems(runtime)
    elif runtime.num_evaluators:
        yield (
            "runtime.num_evaluators",
            f"got 1 under `{runtime.distribution_strategy}`, which runs in one process\n"
            "run a second job with --mode=continuous_eval in the same run directory",
        )
    if runtime.num_gpus < 0:
        yield (
            "runtime.num_gpus",
            "got -1, but a manifest requires a number: use --gpus_per_worker=N",
        )
    if configured_jobs(runtime):
        field = "worker_hosts" if runtime.worker_hosts else "cluster"
        yield f"runtime.{field}", "must be unset: the cluster assigns the hosts"
    if runtime.remote_cluster:
        yield "runtime.remote_cluster", "must be unset: the cluster assigns the servers"
    if runtime.cluster_source not in ("auto", source):
        yield "runtime.cluster_source", f"got `{runtime.cluster_source}`, allowed: auto, {source}"


def _number_problems(runtime: RuntimeConfig) -> Problems:
    strategy = runtime.distribution_strategy
    if not runtime.num_workers:
        yield "runtime.num_workers", "is not set: use --workers=N"
    elif runtime.num_workers == 1 and strategy == "multi_worker_mirrored":
        yield (
            "runtime.num_workers",
            f"got 1 under `{strategy}`, which requires several workers\n"
            "allowed: 2 or more; or set runtime.distribution_strategy: mirrored",
        )


def requirements(config: ExperimentConfig) -> list[str]:
    """Returns the paths and modules that the experiment needs where it runs, one per line."""
    names = ("data_dir", "input_path", "init_checkpoint")
    needed = [
        f"{path}: {value}"
        for path, value in flat_settings(config).items()
        if path.rpartition(".")[2] in names and value
    ]
    return [*needed, *(f"imports: {name}" for name in config.imports)]


def job_name(text: str) -> str:
    """Returns a job name: lower-case letters, digits and hyphens, starting with a letter."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    name = name if name[:1].isalpha() else f"run-{name}"
    return name[:_LONGEST_NAME].strip("-")


def name_problem(name: str) -> str:
    """Returns what is wrong with the name of a job, or ""."""
    if len(name) <= _LONGEST_NAME and _NAME.fullmatch(name):
        return ""
    return (
        f"got {name!r:.60}, expected lowercase letters, digits and hyphens, starting with a "
        f"letter, at most {_LONGEST_NAME} characters"
    )


def parse_mebibytes(text: str) -> int | None:
    """Returns MiB for a text such as `512Mi` or `16Gi`, or None if it is invalid."""
    match = _MEMORY.fullmatch(text)
    return int(match[1]) * (1024 if match[2] == "Gi" else 1) if match else None


def parse_seconds(text: str) -> int | None:
    """Returns seconds for a time in Slurm's format, or None if it is invalid.

    The formats are `minutes`, `minutes:seconds`, `hours:minutes:seconds`, `days-hours`,
    `days-hours:minutes` and `days-hours:minutes:seconds`.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    days, *rest = match.groups()
    parts = [int(part) for part in rest if part is not None]
    if days is not None:
        hours, minutes, seconds = [*parts, 0, 0][:3]
        return ((int(days) * 24 + hours) * 60 + minutes) * 60 + seconds
    hours, minutes, seconds = {1: [0, *parts, 0], 2: [0, *parts], 3: parts}[len(parts)]
    return (hours * 60 + minutes) * 60 + seconds
