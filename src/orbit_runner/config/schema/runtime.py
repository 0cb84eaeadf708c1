"""Settings of the runtime: devices, strategy, cluster, precision, threads, seed."""

from __future__ import annotations

import math
from collections.abc import Iterator

from orbit_runner.config.errors import Problem, no_effect, not_supported
from orbit_runner.config.schema.base import (
    Config,
    GardenOnly,
    config_class,
    field,
    garden_settings,
)
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
_OR_NATIVE = "or runtime.numerics: native"
_NATIVE = "allowed: native"
_ENVIRONMENT = "set the environment variable {}"
_NO_SHARD_DIM = "set train_input_partition_dims and eval_input_partition_dims"


Problems = Iterator[Problem]


@config_class
class RuntimeConfig(Config):
    """Devices, strategy and cluster: the fields of Model Garden's `RuntimeConfig`, and more."""

    garden_only = garden_settings(
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
        help="seconds from SIGTERM to SIGKILL; training stops within a second, or a sixth "
        "of it if that is shorter; the rest is for saving",
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

    def problems(self) -> Iterator[Problem]:
        """Yields (field, message) for settings that contradict each other."""
        for rule in (
            _device_problems,
            _all_reduce_problems,
            _cluster_problems,
            _parameter_server_problems,
            _loss_scale_problems,
            _portable_problems,
            _logical_replica_problems,
        ):
            yield from rule(self)

    def inert(self) -> Iterator[Problem]:
        """Yields (field, message) for settings that have no effect under the strategy."""
        for rule in (_inert_all_reduce, _inert_hosts, _inert_loss_scale, _inert_tpu):
            yield from rule(self)


def _device_problems(runtime: RuntimeConfig) -> Problems:
    strategy = runtime.distribution_strategy
    traits = runtime.traits
    several = traits.several_devices
    if not several and runtime.num_gpus > 1 and not traits.uses_tpu:
        yield not_supported(
            "num_gpus", f"got {runtime.num_gpus} under `{strategy}`, which uses one device"
        )
    if runtime.num_virtual_devices == 1:
        return
    got = f"got {runtime.num_virtual_devices}"
    if traits.synchronous_workers:
        kind = "whole GPUs" if runtime.num_gpus else "one CPU per worker"
        yield not_supported(
            "num_virtual_devices",
            f"{got} under `{strategy}`, which uses {kind}\n"
            "start more workers: runner launch --workers=N",
        )
    elif not several:
        yield not_supported(
            "num_virtual_devices",
            f"{got} under `{strategy}`, which does not support virtual devices",
        )
    elif runtime.num_gpus:
        yield not_supported(
            "num_virtual_devices",
            f"{got} with num_gpus: {runtime.num_gpus}, but virtual devices are parts of one CPU\n"
            "allowed: 1; or set runtime.num_gpus to 0",
        )


def _all_reduce_problems(runtime: RuntimeConfig) -> Problems:
    strategy = runtime.distribution_strategy
    chosen = runtime.all_reduce_alg
    allowed = runtime.traits.all_reduce
    if chosen is not None and allowed and chosen not in allowed:
        yield not_supported(
            "all_reduce_alg", f"got {chosen!r} under `{strategy}`\nallowed: {', '.join(allowed)}"
        )


def _inert_all_reduce(runtime: RuntimeConfig) -> Problems:
    strategy = runtime.distribution_strategy
    chosen = runtime.all_reduce_alg
    if chosen is None:
        return
    if not runtime.traits.all_reduce:
        yield no_effect(
            "all_reduce_alg", f"`{strategy}` does not all-reduce gradients\nallowed: null"
        )
    elif chosen == "nccl" and runtime.num_gpus == 0:
        yield no_effect("all_reduce_alg", "nccl requires GPUs, but num_gpus is 0")


def _cluster_problems(runtime: RuntimeConfig) -> Problems:
    strategy = runtime.distribution_strategy
    if runtime.worker_hosts and runtime.traits.is_asynchronous:
        yield not_supported(
            "worker_hosts", "contains no parameter servers; describe the cluster in TF_CONFIG"
        )
    if runtime.num_workers > 1 and not runtime.traits.is_clustered:
        yield not_supported(
            "num_workers",
            f"got {runtime.num_workers} under `{strategy}`, which runs in one process\n"
            "allowed: 0, 1; or set runtime.distribution_strategy: multi_worker_mirrored",
        )
    if runtime.remote_cluster and not runtime.traits.is_asynchronous:
        yield not_supported(
            "remote_cluster",
            f"is not supported under `{strategy}`\n"
            "set runtime.distribution_strategy: parameter_server",
        )
    if runtime.remote_cluster and runtime.worker_hosts:
        yield not_supported(
            "remote_cluster", "cannot be combined with runtime.worker_hosts; remove one of them"
        )


def _inert_hosts(runtime: RuntimeConfig) -> Problems:
    if runtime.worker_hosts and not runtime.traits.is_clustered:
        yield no_effect(
            "worker_hosts",
            f"describes a cluster, but `{runtime.distribution_strategy}` runs in one process\n"
            "set runtime.distribution_strategy: multi_worker_mirrored",
        )


def _parameter_server_problems(runtime: RuntimeConfig) -> Problems:
    if not runtime.traits.is_asynchronous:
        if runtime.num_parameter_servers:
            yield not_supported(
                "num_parameter_servers",
                f"`{runtime.distribution_strategy}` has no parameter servers",
            )
        return
    if runtime.mixed_precision_dtype == "float16":
        yield not_supported(
            "mixed_precision_dtype",
            "float16 requires loss scaling, which Keras does not support under `parameter_server`\n"
            "allowed: null, 'float32', 'bfloat16'",
        )
    if runtime.enable_xla:
        yield not_supported(
            "enable_xla", "XLA cannot compile steps whose variables are on other machines"
        )
    if runtime.run_eagerly:
        yield not_supported(
            "run_eagerly", "workers run only graphs; allowed: false under `parameter_server`"
        )
    if runtime.tf_data_service:
        yield not_supported(
            "tf_data_service",
            "each worker makes the batches of its own steps\n"
            "allowed: null under `parameter_server`",
        )


def _inert_tpu(runtime: RuntimeConfig) -> Problems:
    if runtime.traits.uses_tpu:
        if runtime.num_gpus:
            yield no_effect("num_gpus", f"got {runtime.num_gpus}, which has no effect under `tpu`")
        return
    if runtime.tpu is not None:
        yield no_effect(
            "tpu",
            f"has no effect under `{runtime.distribution_strategy}`\n"
            "set runtime.distribution_strategy: tpu",
        )


def _portable_problems(runtime: RuntimeConfig) -> Problems:
    if not runtime.is_portable:
        return
    strategy = runtime.distribution_strategy
    if runtime.uses_accelerators:
        where = "under `tpu`" if runtime.traits.uses_tpu else f"with num_gpus: {runtime.num_gpus}"
        yield not_supported(
            "numerics", f"got 'portable' {where}, but only CPUs compute the same\n{_NATIVE}"
        )
    if runtime.traits.is_asynchronous:
        yield not_supported(
            "numerics",
            f"got 'portable' under `{strategy}`, where the order of updates varies\n{_NATIVE}",
        )
    if not runtime.deterministic:
        yield not_supported(
            "deterministic", f"got false, but numerics is 'portable'\nallowed: true; {_OR_NATIVE}"
        )
    if runtime.enable_xla:
        yield not_supported(
            "enable_xla",
            "got true, but numerics is 'portable', and XLA compiles for the processor of the "
            f"machine\nallowed: false; {_OR_NATIVE}",
        )
    if runtime.intra_op_threads > 1:
        yield not_supported(
            "intra_op_threads",
            f"got {runtime.intra_op_threads}, but numerics is 'portable', and the number of "
            f"threads changes sums\nallowed: 1, or 0, which then means 1; {_OR_NATIVE}",
        )


def _loss_scale_problems(runtime: RuntimeConfig) -> Problems:
    if runtime.loss_scale is None:
        return
    if isinstance(runtime.loss_scale, str):
        if runtime.loss_scale != "dynamic":
            yield not_supported(
                "loss_scale", f"got {runtime.loss_scale!r}, allowed: 'dynamic' or a number"
            )
    elif runtime.loss_scale <= 0:
        yield not_supported("loss_scale", f"got {runtime.loss_scale}, allowed: a number above 0")


def _inert_loss_scale(runtime: RuntimeConfig) -> Problems:
    if runtime.loss_scale is not None and runtime.mixed_precision_dtype != "float16":
        yield no_effect(
            "loss_scale",
            "only float16 needs a loss scale, but mixed_precision_dtype is not float16",
        )


def _logical_replica_problems(runtime: RuntimeConfig) -> Problems:
    if not runtime.logical_replicas:
        return
    logical = runtime.logical_replicas
    strategy = runtime.distribution_strategy
    got = f"got {logical}"
    if runtime.traits.is_asynchronous:
        yield not_supported(
            "logical_replicas",
            f"{got}, but under `{strategy}`, no two workers share a batch\nallowed: 0",
        )
    elif not runtime.traits.logical_replicas:
        yield not_supported(
            "logical_replicas", f"{got}, but `{strategy}` itself divides the batches\nallowed: 0"
        )
    if runtime.run_eagerly:
        yield not_supported(
            "run_eagerly",
            f"got true, but {LOGICAL_REPLICAS} is {logical}, which needs graphs\nallowed: false",
        )
