"""The capabilities of each `runtime.distribution_strategy`, which other modules check."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class StrategyTraits:
    """What a strategy can do.

    Attributes:
        several_devices: Whether one process trains on several devices.
        is_clustered: Whether it runs on the members of a cluster.
        is_asynchronous: Whether workers take steps without waiting for each other, on variables
            that parameter servers hold.
        all_reduce: The algorithms that `runtime.all_reduce_alg` may name.
        logical_replicas: Whether `runtime.logical_replicas` may be set.
        compiles_on_gpus: Whether `runtime.enable_xla: auto` compiles steps on GPUs.
        uses_tpu: Whether it trains on TPUs.
    """

    several_devices: bool = False
    is_clustered: bool = False
    is_asynchronous: bool = False
    all_reduce: tuple[str, ...] = ()
    logical_replicas: bool = False
    compiles_on_gpus: bool = False
    uses_tpu: bool = False

    @property
    def uses_one_device(self) -> bool:
        """Whether it has one replica, in one process."""
        return not (self.several_devices or self.is_clustered or self.uses_tpu)

    @property
    def synchronous_workers(self) -> bool:
        """Whether several workers take each step together."""
        return self.is_clustered and not self.is_asynchronous


STRATEGIES = {
    "off": StrategyTraits(logical_replicas=True, compiles_on_gpus=True),
    "one_device": StrategyTraits(logical_replicas=True, compiles_on_gpus=True),
    "mirrored": StrategyTraits(
        several_devices=True,
        all_reduce=("nccl", "hierarchical_copy", "reduction_to_one_device"),
        logical_replicas=True,
        compiles_on_gpus=True,
    ),
    "multi_worker_mirrored": StrategyTraits(
        several_devices=True,
        is_clustered=True,
        all_reduce=("auto", "ring", "nccl"),
        logical_replicas=True,
        compiles_on_gpus=True,
    ),
    "parameter_server": StrategyTraits(is_clustered=True, is_asynchronous=True),
    "tpu": StrategyTraits(uses_tpu=True),
}
