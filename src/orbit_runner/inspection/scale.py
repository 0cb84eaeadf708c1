"""A rehearsal on paper: what each replica of a cluster would compute, read and send in a step.

All figures are computed from the sizes of one replica, and nothing is started. The times of the
network are those of the usual models of collective operations: a message of m bytes takes
`latency + m / bandwidth`, links are full duplex, and additions take no time. Real networks are
slower. Does not import TensorFlow.

`multi_worker_mirrored` is assumed, and what TensorFlow 2.20 does under it
(`cross_device_ops.CollectiveAllReduce`):

- The dense gradients of a step are concatenated and summed by one all-reduce, which begins when the
  last gradient is known. So a step takes the time to compute plus the time to send.
- A sparse gradient (`tf.IndexedSlices`, that of an embedding whose rows are looked up) is not made
  dense. Each replica gets the rows and indices of all others, by all-gathers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

BANDWIDTH_GBIT = 100.0
LATENCY_SECONDS = 10e-6
WRITE_BYTES_PER_SECOND = 1e9
# How a worker reads the files of the training data.
IN_MEMORY = "memory"  # All, once, at the start.
OWN_EXAMPLES = "own"  # Those of its own examples.
ALL_EXAMPLES = "all"  # All in each epoch; it decodes only its own examples.
_DAY = 86400.0
_GATHERS_PER_SPARSE_GRADIENT = 3  # Of its length, its rows and their indices.


@dataclasses.dataclass(frozen=True)
class ScaleRequest:
    """The cluster that an experiment is rehearsed for.

    Attributes:
        workers: The number of workers.
        gpus_per_worker: The number of GPUs of each worker; each is a replica.
        bandwidth_gbit: The bandwidth of the network link of a worker, in each direction, in Gbit/s.
        gpu: The GPU whose peak the time of a step is computed from; "" if none is named.
        config_flags: The flags that select and change the experiment, for the commands.
    """

    workers: int
    gpus_per_worker: int = 1
    bandwidth_gbit: float = BANDWIDTH_GBIT
    gpu: str = ""
    config_flags: tuple[str, ...] = ()

    @property
    def replicas(self) -> int:
        """The number of replicas of all workers."""
        return self.workers * self.gpus_per_worker


@dataclasses.dataclass(frozen=True)
class Gradient:
    """The gradient of a weight, as a replica sends it.

    Attributes:
        name: The name of the weight.
        dtype: The data type of the gradient.
        size: The bytes of a dense gradient, or of the rows and indices of a sparse one.
        is_sparse: Whether it has only the rows that a batch uses.
    """

    name: str
    dtype: str
    size: int
    is_sparse: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplicaFacts:
    """What an inspection knows of one replica and of the whole run. Sizes are in bytes.

    Attributes:
        examples_per_step: The mean number of examples of a global batch; None if unknown.
        steps_per_epoch: The number of global batches of an epoch; None if unknown.
        train_steps: The number of steps of the run; None if unknown.
        checkpoint_interval: Steps between two checkpoints; 0: one at the end.
        gradients: The gradients that the optimizer gets.
        averaged_size: The variables that replicas average in each step, such as moving averages.
        logical_replicas: `runtime.logical_replicas`.
        flops: Floating-point operations of a step; None if unknown.
        dtype: The data type of the matrix products.
        peak_flops: The peak of the named GPU in FLOP/s; None if it is not known.
        measured_seconds: The measured time of a step of one replica; None if it was not measured.
        batch_size: The tensors of a batch of one replica; None if unknown.
        checkpoint_size: The variables that a checkpoint contains.
        file_size: The files of the training data; None if unknown.
        file_reading: One of the constants above; "" if unknown.
        all_reduce: `runtime.all_reduce_alg`.
    """

    examples_per_step: float | None = None
    steps_per_epoch: float | None = None
    train_steps: int | None = None
    checkpoint_interval: int = 0
    gradients: Sequence[Gradient] = ()
    averaged_size: int = 0
    logical_replicas: int = 0
    flops: int | None = None
    dtype: str = "float32"
    peak_flops: float | None = None
    measured_seconds: float | None = None
    batch_size: int | None = None
    checkpoint_size: int = 0
    file_size: int | None = None
    file_reading: str = ""
    all_reduce: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScalePlan:
    """The figures of a rehearsal. Sizes are in bytes and times in seconds; None is unknown.

    Attributes:
        request: The cluster.
        latency_seconds: The assumed latency of a message between two replicas.
        write_bytes_per_second: The assumed speed at which a checkpoint is written.
        replicas: The number of replicas.
        examples_per_step: Examples of a global batch.
        examples_per_worker: Examples of a worker in a step.
        examples_per_replica: Examples of a replica in a step.
        examples_per_epoch: Examples of an epoch.
        steps_per_epoch: Steps of an epoch.
        train_steps: Steps of the run.
        dense_gradients: The number of dense gradients.
        dense_gradient_bytes: Their size, on each replica.
        gradient_dtypes: The data types of all gradients.
        sparse_gradients: The names of the weights whose gradients are sparse.
        sparse_gradient_bytes: The size of their rows and indices, on each replica.
        averaged_bytes: Variables that the replicas average in each step.
        gathered_bytes: What each replica sends to all others with logical replicas, which gather
            gradients instead of reducing them; 0 without.
        ring_seconds: A ring all-reduce of the dense gradients; None with logical replicas, which
            do not reduce.
        tree_seconds: A tree all-reduce of the dense gradients.
        average_seconds: The all-reduce of the averaged variables.
        gather_seconds: The all-gathers of sparse gradients, or of all with logical replicas.
        exchange_seconds: All that a step sends over the network. Of the two all-reduces, the faster
            one counts, unless `all_reduce` is `ring`.
        all_reduce: `runtime.all_reduce_alg`.
        compute_seconds: A step of one replica, without what it sends.
        compute_source: `measured`, `peak` (a lower bound), or "" if it is unknown.
        flops: Floating-point operations of a step of one replica.
        dtype: The data type of the matrix products.
        peak_flops: The peak of the named GPU in FLOP/s.
        step_seconds: A step: first the computation, then the exchange.
        steps_per_day: Steps of a day, without evaluations and checkpoints.
        run_seconds: The run, without evaluations and checkpoints.
        batch_bytes_per_worker: The tensors of a step that the input pipeline of a worker makes.
        batch_bytes_per_second: The same per second.
        file_bytes: The files of the training data.
        file_reading: How a worker reads them: `memory` (all at the start), `own` (its examples),
            `all` (all in each epoch), or "" if unknown.
        file_bytes_per_step: What a worker reads of them in a step, on average.
        file_bytes_per_second: The same per second.
        checkpoint_bytes: A checkpoint.
        checkpoint_seconds: The time to write it.
        checkpoint_interval: Steps between two checkpoints; 0: one at the end.
        settings: The settings of the real run, by path.
    """

    request: ScaleRequest
    latency_seconds: float
    write_bytes_per_second: float
    replicas: int
    examples_per_step: float | None
    examples_per_worker: float | None
    examples_per_replica: float | None
    examples_per_epoch: float | None
    steps_per_epoch: float | None
    train_steps: int | None
    dense_gradients: int
    dense_gradient_bytes: int
    gradient_dtypes: tuple[str, ...]
    sparse_gradients: tuple[str, ...]
    sparse_gradient_bytes: int
    averaged_bytes: int
    gathered_bytes: int
    ring_seconds: float | None
    tree_seconds: float | None
    average_seconds: float
    gather_seconds: float
    exchange_seconds: float
    all_reduce: str | None
    compute_seconds: float | None
    compute_source: str
    flops: int | None
    dtype: str
    peak_flops: float | None
    step_seconds: float | None
    steps_per_day: float | None
    run_seconds: float | None
    batch_bytes_per_worker: int | None
    batch_bytes_per_second: float | None
    file_bytes: int | None
    file_reading: str
    file_bytes_per_step: float | None
    file_bytes_per_second: float | None
    checkpoint_bytes: int
    checkpoint_seconds: float
    checkpoint_interval: int
    settings: dict[str, str]


def ring_all_reduce_seconds(members: int, size: float, bandwidth: float, latency: float) -> float:
    """Returns the time of a ring all-reduce: 2(n-1)·latency + 2(n-1)/n · size / bandwidth.

    A reduce-scatter and an all-gather, each of n - 1 rounds in which every member sends 1/n of the
    data to its neighbor. It is optimal in bandwidth. See Patarasuk and Yuan, Bandwidth optimal
    all-reduce algorithms for clusters of workstations, J. Parallel Distrib. Comput. 69, 2009; the
    cost of a round is that of Thakur, Rabenseifner and Gropp, Optimization of collective
    communication operations in MPICH, Int. J. High Perform. Comput. Appl. 19, 2005.

    Args:
        members: The number n of members. One member sends nothing.
        size: The bytes that each member contributes.
        bandwidth: The slowest link of the ring, in bytes per second.
        latency: The latency of a message, in seconds.
    """
    rounds = 2 * (members - 1)
    return rounds * latency + rounds / members * size / bandwidth


def tree_all_reduce_seconds(members: int, size: float, bandwidth: float, latency: float) -> float:
    """Returns the time of a tree all-reduce: 2·⌈log2 n⌉·latency + 2 · size / bandwidth.

    Two binary trees, in which each member is a leaf of one and an inner node of the other, reduce
    and then broadcast one half of the data each, in a pipeline of small parts. Their number is
    assumed to be large enough, so this is a lower bound. See Sanders, Speck and Träff, Two-tree
    algorithms for full bandwidth broadcast, reduction and scan, Parallel Computing 35, 2009.
    The arguments are those of `ring_all_reduce_seconds`.
    """
    if members == 1:
        return 0.0
    return 2 * math.ceil(math.log2(members)) * latency + 2 * size / bandwidth


def ring_all_gather_seconds(members: int, size: float, bandwidth: float, latency: float) -> float:
    """Returns the time of a ring all-gather: (n-1) · (latency + size / bandwidth).

    Each member passes on what it gets, so all contributions but its own reach it over one link; see
    Thakur, Rabenseifner and Gropp 2005. The arguments are those of `ring_all_reduce_seconds`.
    """
    return (members - 1) * (latency + size / bandwidth)


def plan_scale(request: ScaleRequest, facts: ReplicaFacts) -> ScalePlan:
    """Returns the figures of a rehearsal.

    A ring passes through all GPUs of a worker before it leaves the worker, so the link of a worker
    carries one stream in each direction. Links inside of a worker are assumed to be faster. If
    there is only one worker, nothing is sent over the network.
    """
    sent = _Exchange(request, facts)
    computed, source = _compute_time(facts)
    step = None if computed is None else computed + sent.total
    batch = None if facts.batch_size is None else facts.batch_size * request.gpus_per_worker
    read = _file_bytes_per_step(request, facts)
    examples = facts.examples_per_step
    return ScalePlan(
        request=request,
        latency_seconds=LATENCY_SECONDS,
        write_bytes_per_second=WRITE_BYTES_PER_SECOND,
        replicas=request.replicas,
        examples_per_step=examples,
        examples_per_worker=_quotient(examples, request.workers),
        examples_per_replica=_quotient(examples, request.replicas),
        examples_per_epoch=_product(examples, facts.steps_per_epoch),
        steps_per_epoch=facts.steps_per_epoch,
        train_steps=facts.train_steps,
        dense_gradients=len(sent.dense),
        dense_gradient_bytes=sent.dense_size,
        gradient_dtypes=tuple(sorted({gradient.dtype for gradient in facts.gradients})),
        sparse_gradients=tuple(gradient.name for gradient in sent.sparse),
        sparse_gradient_bytes=sum(gradient.size for gradient in sent.sparse),
        averaged_bytes=facts.averaged_size,
        gathered_bytes=sent.gathered_size,
        ring_seconds=sent.ring,
        tree_seconds=sent.tree,
        average_seconds=sent.average,
        gather_seconds=sent.gather,
        exchange_seconds=sent.total,
        all_reduce=facts.all_reduce,
        compute_seconds=computed,
        compute_source=source,
        flops=facts.flops,
        dtype=facts.dtype,
        peak_flops=facts.peak_flops,
        step_seconds=step,
        steps_per_day=_quotient(_DAY, step),
        run_seconds=_product(step, facts.train_steps),
        batch_bytes_per_worker=batch,
        batch_bytes_per_second=_quotient(batch, step),
        file_bytes=facts.file_size,
        file_reading=facts.file_reading,
        file_bytes_per_step=read,
        file_bytes_per_second=_quotient(read, step),
        checkpoint_bytes=facts.checkpoint_size,
        checkpoint_seconds=facts.checkpoint_size / WRITE_BYTES_PER_SECOND,
        checkpoint_interval=facts.checkpoint_interval,
        settings=real_settings(request),
    )


def real_settings(request: ScaleRequest) -> dict[str, str]:
    """Returns the settings with which the cluster would run the experiment, by dotted path."""
    return {
        "runtime.distribution_strategy": "multi_worker_mirrored",
        "runtime.num_workers": str(request.workers),
        "runtime.num_gpus": str(request.gpus_per_worker),
    }


class _Exchange:
    """What a replica sends in a step, and how long it takes."""

    def __init__(self, request: ScaleRequest, facts: ReplicaFacts) -> None:
        self.dense = [gradient for gradient in facts.gradients if not gradient.is_sparse]
        self.sparse = [gradient for gradient in facts.gradients if gradient.is_sparse]
        self.dense_size = sum(gradient.size for gradient in self.dense)
        self.gathered_size = 0
        self.ring: float | None = None
        self.tree: float | None = None
        self.average = self.gather = 0.0
        members = request.replicas if request.workers > 1 else 1
        link = (members, request.bandwidth_gbit * 1e9 / 8, LATENCY_SECONDS)
        if facts.logical_replicas:
            self._gather_all(request, facts, link)
        else:
            self._reduce(facts, link)
        self.total = self._faster(facts, self.ring, self.tree) + self.average + self.gather

    def _gather_all(
        self, request: ScaleRequest, facts: ReplicaFacts, link: tuple[int, float, float]
    ) -> None:
        # A device sums the largest aligned blocks of its shards, and sends a sum of each block:
        # see `train/logical_replicas.py`. The gradients are dense then.
        shards = facts.logical_replicas // request.replicas
        blocks = shards // (shards & -shards)
        self.gathered_size = blocks * (self.dense_size + facts.averaged_size)
        members, bandwidth, latency = link
        self.gather = ring_all_gather_seconds(members, self.gathered_size, bandwidth, latency)

    def _reduce(self, facts: ReplicaFacts, link: tuple[int, float, float]) -> None:
        members, bandwidth, latency = link
        self.ring = ring_all_reduce_seconds(members, self.dense_size, bandwidth, latency)
        self.tree = tree_all_reduce_seconds(members, self.dense_size, bandwidth, latency)
        if facts.averaged_size:
            size = facts.averaged_size
            ring = ring_all_reduce_seconds(members, size, bandwidth, latency)
            tree = tree_all_reduce_seconds(members, size, bandwidth, latency)
            self.average = self._faster(facts, ring, tree)
        for gradient in self.sparse:
            waits = (_GATHERS_PER_SPARSE_GRADIENT - 1) * (members - 1) * latency
            self.gather += (
                ring_all_gather_seconds(members, gradient.size, bandwidth, latency) + waits
            )

    @staticmethod
    def _faster(facts: ReplicaFacts, ring: float | None, tree: float | None) -> float:
        """Returns the time of the all-reduce that is used: NCCL chooses the faster one."""
        if ring is None or tree is None:
            return 0.0
        return ring if facts.all_reduce == "ring" else min(ring, tree)


def _compute_time(facts: ReplicaFacts) -> tuple[float | None, str]:
    """Returns the time of a step of one replica, and where it is from."""
    if facts.peak_flops and facts.flops:
        return facts.flops / facts.peak_flops, "peak"
    if facts.measured_seconds is not None:
        return facts.measured_seconds, "measured"
    return None, ""


def _file_bytes_per_step(request: ScaleRequest, facts: ReplicaFacts) -> float | None:
    if facts.file_reading == IN_MEMORY:
        return 0.0
    if not facts.file_reading or facts.file_size is None or not facts.steps_per_epoch:
        return None
    workers = request.workers if facts.file_reading == OWN_EXAMPLES else 1
    return facts.file_size / facts.steps_per_epoch / workers


def _quotient(value: float | None, divisor: float | None) -> float | None:
    return None if value is None or not divisor else value / divisor


def _product(value: float | None, factor: float | None) -> float | None:
    return None if value is None or factor is None else value * factor
