"""The members of a cluster, as given in a config."""

from __future__ import annotations

import dataclasses

from orbit_runner.config.schema.base import Config, field

ROLES = ("chief", "worker", "ps", "evaluator")
SOURCES = ("auto", "tf_config", "config", "slurm", "sagemaker", "none")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterConfig(Config):
    """The addresses (`host:port`) of each role's members, in the order of their indices."""

    chief: list[str] = field((), help="the one that writes; worker 0 where there is none")
    worker: list[str] = field((), help="those that train")
    ps: list[str] = field((), help="parameter servers, which hold the variables")
    evaluator: list[str] = field((), help="evaluates checkpoints beside training")

    def jobs(self) -> dict[str, tuple[str, ...]]:
        """Returns the addresses of each role that has members."""
        named = {role: tuple(getattr(self, role)) for role in ROLES}
        return {role: addresses for role, addresses in named.items() if addresses}
