"""What each replica of a cluster would compute, read and send in a step, on paper.

`multi_worker_mirrored` is assumed. All figures are computed from the sizes of one replica, and
nothing is started. Does not import TensorFlow.
"""

from __future__ import annotations

import dataclasses

BANDWIDTH_GBIT = 100.0
LATENCY_SECONDS = 10e-6


@dataclasses.dataclass(frozen=True)
class ScaleRequest:
    """The cluster that an experiment is rehearsed for.

    Attributes:
        workers: The number of workers.
        gpus_per_worker: The number of GPUs of each worker; each is a replica.
        bandwidth_gbit: The bandwidth of the network link of a worker, in each direction, in Gbit/s.
    """

    workers: int
    gpus_per_worker: int = 1
    bandwidth_gbit: float = BANDWIDTH_GBIT

    @property
    def replicas(self) -> int:
        """The number of replicas of all workers."""
        return self.workers * self.gpus_per_worker

    def settings(self) -> dict[str, str]:
        """Returns the settings with which the cluster would run, by dotted path."""
        return {
            "runtime.distribution_strategy": "multi_worker_mirrored",
            "runtime.num_workers": str(self.workers),
            "runtime.num_gpus": str(self.gpus_per_worker),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """The figures of a cluster. Sizes are in bytes; None is unknown.

    Attributes:
        request: The cluster.
        replicas: The number of replicas.
        examples_per_step: The mean number of examples of a global batch.
        examples_per_worker: The examples of a worker in a step.
        examples_per_replica: The examples of a replica in a step.
        steps_per_epoch: The number of global batches of an epoch.
        gradient_bytes: The gradients that each replica sends in a step.
        ring_seconds: The time of a ring all-reduce of them.
        file_bytes: The files of the training data.
        file_reading: How a worker reads them: `memory` (all at the start), `own` (its examples),
            `all` (all in each epoch), or "" if unknown.
        file_bytes_per_step: What a worker reads of them in a step, on average.
        checkpoint_bytes: A checkpoint.
        checkpoint_interval: Steps between two checkpoints; 0: one at the end.
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


def ring_all_reduce_seconds(members: int, size: float, bandwidth: float, latency: float) -> float:
    """Returns the time of a ring all-reduce: 2(n-1)·latency + 2(n-1)/n · size / bandwidth.

    A reduce-scatter and an all-gather, each of n - 1 rounds in which every member sends 1/n of the
    data to its neighbor. See Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for
    clusters of workstations, J. Parallel Distrib. Comput. 69, 2009.

    Args:
        members: The number n of members. One member sends nothing.
        size: The bytes that each member contributes.
        bandwidth: The slowest link of the ring, in bytes per second.
        latency: The latency of a message, in seconds.
    """
    rounds = 2 * (members - 1)
    return rounds * latency + rounds / members * size / bandwidth


def network_seconds(request: ScaleRequest, size: int) -> float:
    """Returns the time of a ring all-reduce over all replicas; 0 if there is only one worker.

    The ring passes through all GPUs of a worker before it leaves the worker, so the link of a
    worker carries one stream in each direction. Links inside of a worker count as faster.
    """
    if request.workers == 1:
        return 0.0
    bandwidth = request.bandwidth_gbit * 1e9 / 8
    return ring_all_reduce_seconds(request.replicas, size, bandwidth, LATENCY_SECONDS)
