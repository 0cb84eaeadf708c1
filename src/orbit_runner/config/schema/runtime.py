"""Settings of the runtime: devices, strategy, cluster, precision, threads, seed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from orbit_runner.config.schema.base import Config, field
from orbit_runner.config.schema.runtime_rules import inert_settings, runtime_problems
from orbit_runner.config.schema.strategies import STRATEGIES, StrategyTraits

ROLES = ("chief", "worker", "ps", "evaluator")
SOURCES = ("auto", "tf_config", "config", "slurm", "sagemaker", "none")
ALL_REDUCE = (None, "auto", "ring", "nccl", "hierarchical_copy", "reduction_to_one_device")
_NO_SHARD_DIM = "set train_input_partition_dims and eval_input_partition_dims"


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuntimeConfig(Config):
    """Devices, strategy and cluster: the fields of Model Garden's `RuntimeConfig`, and more."""

    distribution_strategy: str = field(
        "mirrored", allowed=tuple(STRATEGIES), lowercase=True, help="how replicas work together"
    )
    num_gpus: int = field(
        0,
        ge=-1,
        le=1024,
        help="of each worker; 0: the CPU; n: that many GPUs; -1: all there are",
    )
    num_virtual_devices: int = field(
        1, ge=1, le=1024, help="devices on one CPU, to try `mirrored` without a GPU"
    )
    seed: int = field(
        0, ge=0, le=2**32 - 1, help="seed of weights, order of examples, augmentation"
    )
    deterministic: bool = field(True, help="only ops that give the same bits each time")
    enable_xla: bool = field(
        False,
        help="compile with XLA: whole steps on one device, else the forward and backward pass",
    )
    xla_cache_dir: str = field(
        "", help="folder that keeps what XLA compiled, so that the next run need not"
    )
    mixed_precision_dtype: str | None = field(
        None,
        allowed=(None, "float32", "float16", "bfloat16"),
        help="type of activations; weights stay float32",
    )
    loss_scale: str | float | None = field(
        None, help="for float16: a number, or 'dynamic' (also where unset)"
    )
    run_eagerly: bool = field(False, help="no graphs, to debug a step line by line")
    all_reduce_alg: str | None = field(
        None, allowed=ALL_REDUCE, help="how gradients of the replicas are added up"
    )
    num_packs: int = field(1, ge=0, le=65536, help="gradients are packed into that many pieces")
    intra_op_threads: int = field(
        0,
        ge=0,
        le=4096,
        help="threads inside one op; 0: one for each core. Changes the weights' bits",
    )
    inter_op_threads: int = field(0, ge=0, le=4096, help="ops at once; 0: TensorFlow decides")
    dataset_num_private_threads: int | None = field(
        None, ge=1, le=4096, help="threads that only input pipelines use"
    )
    gpu_thread_mode: str | None = field(
        None, allowed=(None, "global", "gpu_private", "gpu_shared"), help="threads that feed a GPU"
    )
    per_gpu_thread_count: int = field(0, ge=0, le=1024, help="their number; 0: TensorFlow decides")
    batchnorm_spatial_persistent: bool = field(False, help="cuDNN's faster batch norm")
    enable_winograd_nonfused: bool | None = field(
        None, help="cuDNN's Winograd convolutions in several kernels; TensorFlow's own where unset"
    )
    cluster_source: str = field(
        "auto", allowed=SOURCES, help="where the cluster is described; auto: the first that is"
    )
    cluster: ClusterConfig = field(factory=ClusterConfig, help="its members")
    num_workers: int = field(
        0,
        ge=0,
        le=65536,
        help="members that train, the chief included; 0: as many as are described",
    )
    num_parameter_servers: int = field(0, ge=0, le=65536, help="the same of parameter servers")
    num_evaluators: int = field(0, ge=0, le=1, help="1: evaluates beside training")
    worker_hosts: str | None = field(
        None, help="its workers, host:port parted by commas, where there are no other roles"
    )
    task_type: str | None = field(
        None, allowed=(None, *ROLES), help="the role of this process; worker where unset"
    )
    task_index: int = field(-1, ge=-1, le=65536, help="its index among those of its role")
    remote_cluster: str | None = field(
        None, help="servers to run on, such as worker=a:2222,b:2222;ps=c:2222"
    )
    cluster_start_timeout: int = field(
        120, ge=1, le=10**6, help="seconds that members wait for each other at the start"
    )
    heartbeat_timeout: int = field(
        10, ge=2, le=10**5, help="seconds of silence after which a member counts as lost"
    )
    grace_period: float = field(
        30.0,
        gt=0.0,
        help="seconds from SIGTERM to SIGKILL on this platform: a loop of steps stops within a "
        "sixth of it, and the rest is for saving",
    )
    variable_partitioner: str | None = field(
        None,
        allowed=(None, "fixed", "min_size", "max_size"),
        help="how `parameter_server` cuts variables over the servers; whole where unset",
    )
    variable_shards: int = field(0, ge=0, le=65536, help="most shards; 0: one a parameter server")
    variable_shard_bytes: int = field(
        262144, ge=1, le=2**40, help="smallest (min_size) or largest (max_size) shard"
    )
    tf_data_service: str | None = field(
        None, help="addresses of tf.data services that make the batches: grpc://host:port, …"
    )
    tpu: str | None = field(
        None, help="name or address of a TPU, or local; from the environment where unset"
    )
    tpu_zone: str | None = field(None, help="zone of a TPU that is given by name")
    tpu_project: str | None = field(None, help="cloud project of a TPU that is given by name")
    tpu_platform: str | None = field(
        None, help="kind of TPU, such as v3-8, to check partitions before it is reached"
    )
    tpu_enable_xla_dynamic_padder: bool | None = field(
        None, help="whether XLA pads part-filled batches on a TPU"
    )
    num_cores_per_replica: int = field(
        1,
        ge=1,
        le=65536,
        help="TPU cores that share a replica: the product of the partition dims",
    )
    train_input_partition_dims: list[int] | None = field(
        None,
        le=65536,
        help="parts of a training image batch along each dimension, such as [1, 2, 2, 1]",
    )
    eval_input_partition_dims: list[int] | None = field(
        None, le=65536, help="the same for evaluation"
    )
    default_shard_dim: int = field(-1, help="dimension that is split", unsupported=_NO_SHARD_DIM)
    use_tpu_mp_strategy: bool = field(False, help="model parallelism", unsupported=_NO_SHARD_DIM)

    def model_parallelism(self) -> dict[str, int]:
        """Returns the model parallelism arguments for Model Garden's strategy factory."""
        return {
            "num_cores_per_replica": self.num_cores_per_replica,
            "default_shard_dim": self.default_shard_dim,
        }

    @property
    def traits(self) -> StrategyTraits:
        """What the strategy can do."""
        return STRATEGIES[self.distribution_strategy]

    @property
    def parameter_servers(self) -> int:
        """The number of parameter servers that the settings ask for."""
        return (self.num_parameter_servers or 1) if self.traits.is_asynchronous else 0

    @property
    def parts(self) -> int:
        """The number of devices per replica."""
        dims = self.train_input_partition_dims or self.eval_input_partition_dims or ()
        return math.prod(dims)

    @property
    def effective_all_reduce(self) -> str | None:
        """The all-reduce algorithm in use. NCCL is used only on GPUs."""
        on_cpu = self.all_reduce_alg == "nccl" and self.num_gpus == 0
        return None if on_cpu else self.all_reduce_alg

    def num_replicas(self, workers: int = 1) -> int | None:
        """Returns the number of replicas, or None if it depends on the devices that are found."""
        strategy = self.distribution_strategy
        if self.traits.is_asynchronous:
            return 1  # Training is asynchronous: each batch is processed by one worker.
        if strategy == "tpu" or self.num_gpus < 0:
            return None
        if strategy == "multi_worker_mirrored":
            return workers * max(1, self.num_gpus)
        if strategy == "mirrored":
            return (self.num_gpus or self.num_virtual_devices) // self.parts
        return 1

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields (field, message) for settings that contradict each other."""
        yield from runtime_problems(self)

    def inert(self) -> Iterator[tuple[str, str]]:
        """Yields (field, message) for settings that have no effect under the strategy."""
        yield from inert_settings(self)
