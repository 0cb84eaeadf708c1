"""What each replica of a cluster would compute, read and send in a step, on paper.

`multi_worker_mirrored` is assumed. All figures are computed from the sizes of one replica, and
nothing is started. Does not import TensorFlow.
"""

from __future__ import annotations

import dataclasses

BANDWIDTH_GBIT = 100.0  # of a worker's link in each direction
LATENCY_SECONDS = 10e-6


@dataclasses.dataclass(frozen=True)
class ScaleRequest:
    """The workers of a cluster, and their GPUs."""

    workers: int
    gpus_per_worker: int = 1

    @property
    def replicas(self) -> int:
        """The number of replicas: each GPU of each worker."""
        return self.workers * self.gpus_per_worker

    def settings(self) -> dict[str, str]:
        """Returns the settings with which the cluster would run, by dotted path."""
        return {
            "runtime.distribution_strategy": "multi_worker_mirrored",
            "runtime.num_workers": str(self.workers),
            "runtime.num_gpus": str(self.gpus_per_worker),
        }

    def ring_seconds(self, size: int) -> float:
        """Returns the time of a ring all-reduce of some bytes; 0 if there is only one worker.

        2(n-1) · latency + 2(n-1)/n · size / bandwidth for n replicas: Patarasuk and Yuan, Bandwidth
        optimal all-reduce algorithms for clusters of workstations, J. Parallel Distrib. Comput. 69,
        2009. The ring passes through all GPUs of a worker before it leaves the worker, so its link
        carries one stream in each direction.
        """
        if self.workers == 1:
            return 0.0
        rounds = 2 * (self.replicas - 1)
        bandwidth = BANDWIDTH_GBIT * 1e9 / 8
        return rounds * LATENCY_SECONDS + rounds / self.replicas * size / bandwidth


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """The figures of a cluster. Sizes are in bytes; None is unknown.

    `file_reading` is how a worker reads the files: see `TaskData.file_reading`. A checkpoint is
    written every `checkpoint_interval` steps, or only at the end if that is 0.
    """

    request: ScaleRequest
    replicas: int
    examples_per_step: float | None
    examples_per_worker: float | None
    examples_per_replica: float | None
    steps_per_epoch: float | None
    gradient_bytes: int
    ring_seconds: float
    file_bytes: int | None
    file_reading: str
    file_bytes_per_step: float | None
    checkpoint_bytes: int
    checkpoint_interval: int
