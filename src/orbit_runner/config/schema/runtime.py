"""Settings of the runtime: devices, strategy, cluster, precision, threads, seed."""

from __future__ import annotations

import math
from collections.abc import Iterator

from orbit_runner.config.schema.base import Config, GardenOnly, Rule, config_class, field
from orbit_runner.config.schema.strategies import STRATEGIES, StrategyTraits
from orbit_runner.config.schema.weights import DEVICES, NEVER, races, uses_xla, when

NUMERICS = ("native", "portable")
ROLES = ("chief", "worker", "ps", "evaluator")
ALL_REDUCE_ALGORITHMS = (
    None,
    "auto",
    "ring",
    "nccl",
    "hierarchical_copy",
    "reduction_to_one_device",
)
LOGICAL_REPLICAS = "runtime.logical_replicas"
_ENVIRONMENT = "set the environment variable {}"
_NO_SHARD_DIM = "set train_input_partition_dims and eval_input_partition_dims"

# Those of a strategy are in its `StrategyTraits`.
_RULES = (
    Rule("num_gpus",
         lambda r: r.num_gpus > 1 and not (r.traits.several_devices or r.traits.uses_tpu),
         "got {value} under `{s.distribution_strategy}`, which uses one device"),
    Rule("num_virtual_devices",
         lambda r: r.num_virtual_devices > 1 and (
             r.traits.synchronous_workers
             or not r.traits.several_devices
             or (r.num_gpus and not r.traits.is_clustered)),
         "got {value} under `{s.distribution_strategy}` with num_gpus: {s.num_gpus}\n"
         "allowed: 1; virtual devices are parts of one CPU, such as under `mirrored`"),
    Rule("all_reduce_alg",
         lambda r: r.traits.all_reduce and r.all_reduce_alg not in (None, *r.traits.all_reduce),
         lambda r: f"got {r.all_reduce_alg!r} under `{r.distribution_strategy}`\n"
         f"allowed: {', '.join(r.traits.all_reduce)}"),
    Rule("num_workers", lambda r: r.num_workers > 1 and not r.traits.is_clustered,
         "got {value} under `{s.distribution_strategy}`, which runs in one process\n"
         "allowed: 0, 1; or set runtime.distribution_strategy: multi_worker_mirrored"),
    Rule("remote_cluster", lambda r: r.remote_cluster and not r.traits.is_asynchronous,
         "is not supported under `{s.distribution_strategy}`\n"
         "set runtime.distribution_strategy: parameter_server"),
    Rule("remote_cluster", lambda r: r.remote_cluster and r.worker_hosts,
         "cannot be combined with runtime.worker_hosts; remove one of them"),
    Rule("num_parameter_servers",
         lambda r: r.num_parameter_servers and not r.traits.is_asynchronous,
         "`{s.distribution_strategy}` has no parameter servers"),
    Rule("loss_scale", lambda r: isinstance(r.loss_scale, str) and r.loss_scale != "dynamic",
         "got {value!r}, allowed: 'dynamic' or a number"),
    Rule("loss_scale", lambda r: isinstance(r.loss_scale, (int, float)) and r.loss_scale <= 0,
         "got {value}, allowed: a number above 0"),
    Rule("numerics", lambda r: r.is_portable and r.num_gpus and not r.traits.uses_tpu,
         "got 'portable' with num_gpus: {s.num_gpus}, but only CPUs compute the same\n"
         "allowed: native"),
    Rule("deterministic", lambda r: r.is_portable and not r.deterministic,
         "got false, but numerics is 'portable'\nallowed: true; or runtime.numerics: native"),
    Rule("enable_xla", lambda r: r.is_portable and r.enable_xla,
         "got true, but numerics is 'portable', and XLA compiles for the processor of the machine\n"
         "allowed: false; or runtime.numerics: native"),
    Rule("intra_op_threads", lambda r: r.is_portable and r.intra_op_threads > 1,
         "got {value}, but numerics is 'portable', and the number of threads changes sums\n"
         "allowed: 1, or 0, which then means 1; or runtime.numerics: native"),
    Rule("logical_replicas", lambda r: r.logical_replicas and not r.traits.logical_replicas,
         "got {value}, which is not supported under `{s.distribution_strategy}`\n"
         "allowed: 0; or set another runtime.distribution_strategy"),
    Rule("run_eagerly", lambda r: r.logical_replicas and r.run_eagerly,
         f"got true, but {LOGICAL_REPLICAS} is {{s.logical_replicas}}, which needs graphs\n"
         "allowed: false"),
    Rule("all_reduce_alg", lambda r: r.all_reduce_alg and not r.traits.all_reduce,
         "`{s.distribution_strategy}` does not all-reduce gradients\nallowed: null", "no-effect"),
    Rule("all_reduce_alg",
         lambda r: r.all_reduce_alg == "nccl" and r.traits.all_reduce and not r.num_gpus,
         "nccl requires GPUs, but num_gpus is 0", "no-effect"),
    Rule("worker_hosts", lambda r: r.worker_hosts and not r.traits.is_clustered,
         "describes a cluster, but `{s.distribution_strategy}` runs in one process\n"
         "set runtime.distribution_strategy: multi_worker_mirrored", "no-effect"),
    Rule("loss_scale",
         lambda r: r.loss_scale is not None and r.mixed_precision_dtype != "float16",
         "only float16 needs a loss scale, but mixed_precision_dtype is not float16", "no-effect"),
    Rule("tpu", lambda r: r.tpu is not None and not r.traits.uses_tpu,
         "has no effect under `{s.distribution_strategy}`\n"
         "set runtime.distribution_strategy: tpu", "no-effect"),
)  # fmt: skip


@config_class
class RuntimeConfig(Config):
    """Devices, strategy and cluster: the fields of Model Garden's `RuntimeConfig`, and more."""

    _rules = _RULES
    garden_only = GardenOnly.settings(
        gpu_thread_mode=GardenOnly(None, _ENVIRONMENT.format("TF_GPU_THREAD_MODE")),
        per_gpu_thread_count=GardenOnly(0, _ENVIRONMENT.format("TF_GPU_THREAD_COUNT")),
        batchnorm_spatial_persistent=GardenOnly(
            False, _ENVIRONMENT.format("TF_USE_CUDNN_BATCHNORM_SPATIAL_PERSISTENT")
        ),
        num_packs=GardenOnly(1, "TensorFlow packs gradients as it does by default"),
        tpu_platform=GardenOnly(None, "the TPU itself says which devices it has"),
        tpu_enable_xla_dynamic_padder=GardenOnly(None, "XLA pads partial batches"),
        num_cores_per_replica=GardenOnly(1, "it is the product of the partition dims"),
        default_shard_dim=GardenOnly(-1, _NO_SHARD_DIM, refused=True),
        use_tpu_mp_strategy=GardenOnly(False, _NO_SHARD_DIM, refused=True),
    )
    distribution_strategy: str = field(
        "mirrored",
        allowed=tuple(STRATEGIES),
        lowercase=True,
        weights=DEVICES,
        role="devices",
        help="the tf.distribute strategy",
    )
    num_gpus: int = field(
        0,
        ge=-1,
        le=1024,
        weights=DEVICES,
        role="devices",
        help="number of GPUs per worker; 0: use the CPU, -1: all available GPUs",
    )
    num_virtual_devices: int = field(
        1,
        ge=1,
        le=1024,
        weights=DEVICES,
        role="devices",
        help="number of virtual devices on one CPU, to try `mirrored` without GPUs",
    )
    logical_replicas: int = field(
        0,
        ge=0,
        le=65536,
        help="number of parts that each batch is divided into. The weights are the same on any "
        "number of devices that divides it; 0: one part per device",
    )
    seed: int = field(
        0, ge=0, le=2**32 - 1, help="random seed for weights, shuffling and augmentation"
    )
    deterministic: bool = field(True, help="use only deterministic ops")
    numerics: str = field(
        "native",
        allowed=NUMERICS,
        help="native: as fast as this processor can; portable: the same weights on every x86-64 "
        "processor with AVX2 and FMA, with one thread per op",
    )
    enable_xla: bool | str = field(
        False,
        word="auto",
        help="compile with XLA: whole steps on one device, forward and backward passes on several; "
        "auto: on GPUs, except for batches of many shapes",
    )
    mixed_precision_dtype: str | None = field(
        None,
        allowed=(None, "float32", "float16", "bfloat16"),
        help="dtype of activations; weights stay float32",
    )
    loss_scale: str | float | None = field(
        None, help="loss scale for float16: a number or 'dynamic'; by default dynamic"
    )
    run_eagerly: bool = field(
        False, help="run eagerly, without graphs, to debug a step line by line"
    )
    all_reduce_alg: str | None = field(
        None,
        allowed=ALL_REDUCE_ALGORITHMS,
        weights=DEVICES,
        role="devices",
        help="algorithm that reduces gradients across replicas; by default chosen by TensorFlow",
    )
    intra_op_threads: int = field(
        0,
        ge=0,
        le=4096,
        help="threads within one op; 0: one per CPU core; affects the last bits of the weights",
    )
    # Deterministic ops give the same results in any order.
    inter_op_threads: int = field(
        0,
        ge=0,
        le=4096,
        weights=when(races),
        help="number of ops that run in parallel; 0: chosen by TensorFlow",
    )
    dataset_num_private_threads: int | None = field(
        None,
        ge=1,
        le=4096,
        weights=NEVER,
        help="number of private threads for input pipelines; by default they share threads",
    )
    num_workers: int = field(
        0,
        ge=0,
        le=65536,
        weights=DEVICES,
        role="cluster",
        help="number of workers, a multi_worker_mirrored chief included; 0: as the cluster "
        "description says",
    )
    num_parameter_servers: int = field(
        0,
        ge=0,
        le=65536,
        role="cluster",
        help="number of parameter servers; 0: as the cluster description says, or 1",
    )
    num_evaluators: int = field(
        0,
        ge=0,
        le=1,
        weights=NEVER,
        role="cluster",
        help="number of processes that evaluate checkpoints during training",
    )
    worker_hosts: str | None = field(
        None,
        weights=NEVER,
        role="cluster",
        help="comma-separated host:port of all workers, for clusters without other roles",
    )
    task_index: int = field(
        -1,
        ge=-1,
        le=65536,
        weights=NEVER,
        role="cluster",
        help="index of this worker in worker_hosts; -1: unset",
    )
    remote_cluster: str | None = field(
        None,
        weights=NEVER,
        role="cluster",
        help="addresses of a remote cluster to train on, such as worker=a:2222,b:2222;ps=c:2222",
    )
    cluster_start_timeout: int = field(
        120,
        ge=1,
        le=10**6,
        weights=NEVER,
        help="seconds that members of the cluster wait for each other at startup",
    )
    heartbeat_timeout: int = field(
        10,
        ge=2,
        le=10**5,
        weights=NEVER,
        help="seconds without a response after which a member counts as lost",
    )
    grace_period: float = field(
        30.0,
        gt=0.0,
        weights=NEVER,
        help="seconds from SIGTERM to SIGKILL; a loop of training takes at most about a second, "
        "or a sixth of it if that is shorter; the rest is for saving",
    )
    # With XLA, steps that create their batches are compiled as a whole; the batches are the same.
    tf_data_service: str | None = field(
        None,
        weights=when(uses_xla),
        role="service",
        help="comma-separated addresses of tf.data services that make the batches: "
        "grpc://host:port",
    )
    tpu: str | None = field(
        None,
        weights=NEVER,
        role="devices",
        help="name or address of the TPU, or 'local'; by default detected from the environment",
    )
    train_input_partition_dims: list[int] | None = field(
        None,
        le=65536,
        role="devices",
        help="on TPUs, the number of partitions of training images along each dimension, such as "
        "[1, 2, 2, 1]",
    )
    eval_input_partition_dims: list[int] | None = field(
        None,
        le=65536,
        role="devices",
        help="on TPUs, the number of partitions of validation images along each dimension",
    )

    @property
    def traits(self) -> StrategyTraits:
        """What the strategy can do."""
        return STRATEGIES[self.distribution_strategy]

    def _broken(self) -> Iterator[Rule]:
        """Yields also the rules of the strategy that the section breaks."""
        yield from super()._broken()
        yield from (rule for rule in self.traits.runtime_rules if rule.applies(self))

    @property
    def uses_all_gpus(self) -> bool:
        """Whether the number of GPUs is known only on the machine that trains."""
        return self.num_gpus < 0

    @property
    def uses_accelerators(self) -> bool:
        """Whether steps run on GPUs or TPUs."""
        return self.traits.uses_tpu or self.num_gpus != 0

    @property
    def is_portable(self) -> bool:
        """Whether the weights must be the same on every processor."""
        return self.numerics == "portable"

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

    @property
    def device_field(self) -> str:
        """The setting that determines the number of devices of this process."""
        return "num_gpus" if self.num_gpus else "num_virtual_devices"

    def num_replicas(self, workers: int | None = None) -> int | None:
        """Returns the number of replicas, or None if it depends on the devices that are found.

        `workers` is by default `num_workers`, or 1 if the cluster description has their number.
        """
        if self.traits.is_asynchronous:
            return 1  # Training is asynchronous: each batch is processed by one worker.
        if self.traits.uses_tpu or self.uses_all_gpus:
            return None
        if self.traits.synchronous_workers:
            workers = max(1, self.num_workers) if workers is None else workers
            return workers * max(1, self.num_gpus)
        if self.traits.several_devices:
            devices: int = getattr(self, self.device_field)
            return devices
        return 1
