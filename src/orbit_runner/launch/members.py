"""From an agreed cluster to the processes that one machine starts for it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from orbit_runner.distribute.cluster.description import Cluster, Member
from orbit_runner.distribute.cluster.tf_config import NAME
from orbit_runner.launch.gathering import Gathered
from orbit_runner.launch.process import Spec
from orbit_runner.launch.roles import PARTS, visible_gpus

# The program and arguments of a member.
Command = Callable[[Cluster, Gathered], Sequence[str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Members:
    """Makes the processes of each attempt.

    Attributes:
        strategy: The strategy that they run.
        command: Their command lines.
        logs: The folder of their logs.
        gpus: How many GPUs each uses; 0 for none, -1 for all.
    """

    strategy: str
    command: Command
    logs: Callable[[Gathered], Path]
    gpus: int = 0

    def specs(self, gathered: Gathered) -> list[Spec]:
        """Makes them.

        Args:
            gathered: The cluster, and which of its members are here.

        Returns:
            How to start each.
        """
        return [
            self._spec(cluster, number, gathered) for number, cluster in enumerate(here(gathered))
        ]

    def _spec(self, cluster: Cluster, number: int, gathered: Gathered) -> Spec:
        me = cluster.me
        return Spec(
            name=str(me),
            part=PARTS[self.strategy][me.role],
            command=tuple(self.command(cluster, gathered)),
            environ=self._environ(cluster, number),
            log=self.logs(gathered) / f"{me.role}-{me.index}.log",
            results=cluster.is_chief,
        )

    def _environ(self, cluster: Cluster, number: int) -> Mapping[str, str]:
        added = {NAME: cluster.tf_config(), "PYTHONUNBUFFERED": "1"}
        if self.gpus > 0 and self.strategy == "multi_worker_mirrored":
            # Each would take the first ones.
            there = os.environ.get("CUDA_VISIBLE_DEVICES")
            added["CUDA_VISIBLE_DEVICES"] = visible_gpus(number, self.gpus, there)
        return {**os.environ, **added}


def here(gathered: Gathered) -> Iterator[Cluster]:
    """Yields the cluster as each member of this machine sees it.

    Args:
        gathered: The cluster.
    """
    for role, addresses in gathered.jobs.items():
        for number in range(gathered.counts.get(role, 0)):
            index = gathered.first[role] + number
            yield Cluster(gathered.jobs, Member(role, index, addresses[index]), NAME)
