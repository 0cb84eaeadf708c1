"""The processes that the launcher starts for the cluster of an attempt."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from orbit_runner.config.schema.strategies import STRATEGIES
from orbit_runner.distribute.cluster.description import Cluster
from orbit_runner.distribute.cluster.tf_config import NAME
from orbit_runner.launch.attempt import Attempt
from orbit_runner.launch.process import Spec
from orbit_runner.launch.roles import ROLE_TRAITS, visible_gpus

# Returns the program and arguments of a member.
Command = Callable[[Cluster, Attempt], Sequence[str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Members:
    """Describes the processes of each attempt."""

    strategy: str
    command: Command
    logs: Callable[[Attempt], Path]  # returns the directory of the logs
    gpus: int = 0  # per member; 0 for none, -1 for all
    stall_timeout: float = 0.0  # the longest time of a training step in seconds; 0 for no limit

    def specs(self, attempt: Attempt) -> list[Spec]:
        """Returns how to start each member of the cluster."""
        return [
            self._spec(cluster, number, attempt)
            for number, cluster in enumerate(attempt.clusters())
        ]

    def _spec(self, cluster: Cluster, number: int, attempt: Attempt) -> Spec:
        me = cluster.me
        return Spec(
            name=str(me),
            traits=ROLE_TRAITS[self.strategy][me.role],
            command=tuple(self.command(cluster, attempt)),
            environ=self._environ(cluster, number),
            log=self.logs(attempt) / f"{me.role}-{me.index}.log",
            results=cluster.is_chief,
            stall_timeout=self.stall_timeout,
        )

    def _environ(self, cluster: Cluster, number: int) -> Mapping[str, str]:
        added = {NAME: cluster.tf_config(), "PYTHONUNBUFFERED": "1"}
        if self.gpus > 0 and STRATEGIES[self.strategy].synchronous_workers:
            # Otherwise, each member would use the first GPUs.
            there = os.environ.get("CUDA_VISIBLE_DEVICES")
            added["CUDA_VISIBLE_DEVICES"] = visible_gpus(number, self.gpus, there)
        return {**os.environ, **added}
