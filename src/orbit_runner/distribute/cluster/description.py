"""A cluster: its members, and which of them this process is."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from orbit_runner import exit_codes
from orbit_runner.config.schema.runtime import ROLES
from orbit_runner.distribute.cluster.addresses import address_problem, split_address
from orbit_runner.errors import RunnerError, unknown_name_message

Jobs = Mapping[str, tuple[str, ...]]
_SHOWN = 4


class ClusterError(RunnerError):
    """Raised if the description of a cluster is invalid or its members do not agree."""

    code = "bad-cluster"


def raise_problems(source: str, problems: Sequence[str]) -> None:
    """Raises `ClusterError` with the first few problems, if there are any.

    `source` is the place where the cluster is described.
    """
    if not problems:
        return
    others = [f"{source}: {problem}" for problem in problems[1:_SHOWN]]
    if problems[_SHOWN:]:
        others.append(f"… and {len(problems) - _SHOWN} more")
    raise ClusterError("\n".join([problems[0], *others]), path=source)


@dataclasses.dataclass(frozen=True)
class Member:
    """One process of a cluster."""

    role: str  # One of `config.schema.runtime.ROLES`.
    index: int  # Among the members of its role.
    address: str = dataclasses.field(default="", compare=False)  # `host:port`; "" if not needed.

    def __str__(self) -> str:
        return f"{self.role} {self.index}"


def members_of(jobs: Jobs, roles: Collection[str] = ROLES) -> list[Member]:
    """Returns the members of a cluster that have one of the roles, in the order of the roles."""
    return [
        Member(role, index, address)
        for role in roles
        for index, address in enumerate(jobs.get(role, ()))
    ]


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The members of a cluster, and which of them this process is."""

    jobs: Jobs  # Role to the addresses of its members, in the order of their indices.
    me: Member  # This process.
    source: str  # Where the cluster is described, for messages.

    def members(self) -> list[Member]:
        """Returns all members, the chief first."""
        return members_of(self.jobs)

    def trainers(self) -> list[Member]:
        """Returns the members that train together, the chief first."""
        return members_of(self.jobs, ("chief", "worker"))

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the files of the run."""
        return self.trainers()[:1] == [self.me]

    def tf_config(self) -> str:
        """Returns the value of `TF_CONFIG` for this process."""
        task = {"type": self.me.role, "index": self.me.index}
        return json.dumps({"cluster": self.jobs, "task": task})

    def as_dict(self) -> dict[str, object]:
        """Returns what `run.json` records about the cluster."""
        jobs = {role: list(addresses) for role, addresses in self.jobs.items()}
        return {"from": self.source, "me": str(self.me), "members": jobs}


def check_cluster(jobs: Jobs, role: str, index: int, source: str) -> Cluster:
    """Returns the cluster of a description; raises `ClusterError` if the description is invalid.

    `role` and `index` are those of this process. For the other arguments, see `Cluster`.
    """
    raise_problems(source, [*job_problems(jobs), *_task_problems(jobs, role, index)])
    addresses = jobs.get(role, ())
    me = Member(role, index, addresses[index] if addresses else "")
    return Cluster(jobs, me, source)


def job_problems(jobs: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yields what is wrong with the members of a cluster, whichever of them this process is.

    `jobs` maps roles to addresses, which may be values of any type.
    """
    seen: dict[tuple[str, int], str] = {}
    for role, addresses in jobs.items():
        if role not in ROLES:
            yield unknown_name_message("role", role, ROLES)
            continue
        for index, address in enumerate(addresses):
            problem = address_problem(address)
            if problem:
                yield f"cluster.{role}[{index}]: {problem}"
                continue
            host, port = split_address(address)
            first_use = seen.setdefault((host.lower(), port), f"{role}[{index}]")
            if first_use != f"{role}[{index}]":
                yield f"cluster.{role}[{index}]: got {address}, already used by {first_use}"
    for role in ("chief", "evaluator"):
        if len(jobs.get(role, ())) > 1:
            yield f"cluster.{role}: got {len(jobs[role])} {role}s, allowed: one"
    if not jobs.get("chief") and not jobs.get("worker"):
        yield "cluster: there is neither a chief nor a worker"


def _task_problems(jobs: Jobs, role: str, index: int) -> Iterator[str]:
    if role not in ROLES:
        yield f"task.type: {unknown_name_message('role', role, ROLES)}"
        return
    # An evaluator communicates with no member, so launchers often leave it out.
    num_members = len(jobs.get(role, ())) or (1 if role == "evaluator" else 0)
    if not num_members:
        yield f"task.type: got {role!r}, but the cluster has no {role}"
    elif not 0 <= index < num_members:
        some = f"0 to {num_members - 1}" if num_members > 1 else "0"
        yield f"task.index: got {index}, allowed: {some} (the cluster's {role} addresses)"


def format_members(members: Iterable[Member]) -> str:
    """Returns members with their addresses, as messages show them."""
    return ", ".join(f"{member} ({member.address})" for member in members)


class MemberLost(RunnerError):
    """Raised if a member of the cluster is lost, so that this process cannot continue.

    The checkpoints are intact. The exit code is that of SIGUSR1. With the restart policy
    `ExitCode`, Kubernetes' Training Operator treats codes from 128 on as retryable, and reserves
    this one for the user's program.
    """

    code = "member-lost"
    exit_code = exit_codes.MEMBER_LOST
