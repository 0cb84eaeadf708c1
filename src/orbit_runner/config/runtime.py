"""Settings of the machine: devices, strategy, precision, threads, seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from orbit_runner.config.base import Config, setting

STRATEGIES = ("off", "one_device", "mirrored")
ALL_REDUCE = (None, "nccl", "hierarchical_copy", "reduction_to_one_device")
_NO_TPU = "TPUs are not driven by this version"
_NO_CLUSTER = "clusters are not driven by this version"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuntimeConfig(Config):
    """Where an experiment runs; fields of Model Garden's `RuntimeConfig` and some more."""

    distribution_strategy: str = setting(
        "mirrored", allowed=STRATEGIES, help="how replicas work together"
    )
    num_gpus: int = setting(0, minimum=-1, help="0: the CPU; n: that many GPUs; -1: all there are")
    num_virtual_devices: int = setting(
        1, minimum=1, help="replicas on one CPU, to try `mirrored` without a GPU"
    )
    seed: int = setting(0, minimum=0, help="seed of weights, order of examples, augmentation")
    deterministic: bool = setting(True, help="only ops that give the same bits each time")
    enable_xla: bool = setting(False, help="compile the forward and backward pass with XLA")
    mixed_precision_dtype: str | None = setting(
        None,
        allowed=(None, "float32", "float16", "bfloat16"),
        help="type of activations; weights stay float32",
    )
    loss_scale: str | float | None = setting(
        None, help="for float16: a number, or 'dynamic' (also where unset)"
    )
    run_eagerly: bool = setting(False, help="no graphs, to debug a step line by line")
    all_reduce_alg: str | None = setting(
        None, allowed=ALL_REDUCE, help="how `mirrored` adds up gradients"
    )
    num_packs: int = setting(1, minimum=0, help="gradients are packed into that many pieces")
    intra_op_threads: int = setting(
        0, minimum=0, help="threads inside one op; 0: one for each core. Changes the weights' bits"
    )
    inter_op_threads: int = setting(0, minimum=0, help="ops at once; 0: TensorFlow decides")
    dataset_num_private_threads: int | None = setting(
        None, minimum=1, help="threads that only input pipelines use"
    )
    gpu_thread_mode: str | None = setting(
        None, allowed=(None, "global", "gpu_private", "gpu_shared"), help="threads that feed a GPU"
    )
    per_gpu_thread_count: int = setting(0, minimum=0, help="their number; 0: TensorFlow decides")
    batchnorm_spatial_persistent: bool = setting(False, help="cuDNN's faster batch norm")
    tpu: str | None = setting(None, help="name or address of a TPU", refused=_NO_TPU)
    worker_hosts: str | None = setting(None, help="addresses of workers", refused=_NO_CLUSTER)
    task_index: int = setting(-1, help="index of this worker", refused=_NO_CLUSTER)
    tpu_enable_xla_dynamic_padder: bool | None = setting(None, help="XLA pads", refused=_NO_TPU)
    num_cores_per_replica: int = setting(1, help="cores that share a replica", refused=_NO_TPU)
    default_shard_dim: int = setting(-1, help="dimension that is split", refused=_NO_TPU)
    use_tpu_mp_strategy: bool = setting(False, help="model parallelism", refused=_NO_TPU)

    def model_parallelism(self) -> dict[str, int]:
        """Returns the arguments that Model Garden's strategy factory takes."""
        return {
            "num_cores_per_replica": self.num_cores_per_replica,
            "default_shard_dim": self.default_shard_dim,
        }

    @property
    def num_replicas(self) -> int | None:
        """The number of replicas, or None where only the devices tell."""
        if self.num_gpus < 0:
            return None
        if self.distribution_strategy != "mirrored":
            return 1
        return self.num_gpus or self.num_virtual_devices

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields settings that contradict each other."""
        strategy = self.distribution_strategy
        if strategy != "mirrored" and self.num_gpus > 1:
            yield "num_gpus", f"got {self.num_gpus} under `{strategy}`, which uses one device"
        if strategy != "mirrored" and self.num_virtual_devices > 1:
            yield "num_virtual_devices", f"got {self.num_virtual_devices} under `{strategy}`"
        if self.num_gpus != 0 and self.num_virtual_devices > 1:
            yield "num_virtual_devices", "virtual devices are for the CPU, and num_gpus is not 0"
        if strategy != "mirrored" and self.all_reduce_alg:
            yield "all_reduce_alg", f"`{strategy}` has nothing to reduce\nallowed: null"
        if self.num_gpus == 0 and self.all_reduce_alg == "nccl":
            yield "all_reduce_alg", "nccl needs GPUs, and num_gpus is 0"
        yield from self._loss_scale_problems()

    def _loss_scale_problems(self) -> Iterator[tuple[str, str]]:
        if self.loss_scale is None:
            return
        if self.mixed_precision_dtype != "float16":
            yield "loss_scale", "only float16 needs a loss scale; mixed_precision_dtype is not that"
        if isinstance(self.loss_scale, str):
            if self.loss_scale != "dynamic":
                yield "loss_scale", f"got {self.loss_scale!r}, allowed: 'dynamic' or a number"
        elif self.loss_scale <= 0:
            yield "loss_scale", f"got {self.loss_scale}, allowed: a number above 0"
