from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.tpu_topologies import make_topology


class Resolver:
    """A fake TPU that lists its devices, and does nothing else."""

    def __init__(self, platform: str) -> None:
        self.topology: Any = make_topology(platform)
        tasks, cores = self.topology.num_tasks, self.topology.num_tpus_per_task
        names = [f"/job:worker/replica:0/task:{task}/device:TPU:{core}"
                 for task in range(tasks) for core in range(cores)]  # fmt: skip
        self._metadata = SimpleNamespace(
            devices=[SimpleNamespace(name=name) for name in names],
            num_hosts=tasks,
            num_of_cores_per_host=cores,
            num_cores=len(names),
        )

    def get_tpu_system_metadata(self) -> Any:
        return self._metadata

    def cluster_spec(self) -> None:
        return None


@pytest.fixture
def resolver() -> Callable[[str], Resolver]:
    return Resolver
