"""The strategies of `runtime.distribution_strategy`: what each can do, and what it cannot.

Other modules ask these traits, and compare no names.
"""

from __future__ import annotations

import dataclasses

from orbit_runner.config.schema.base import Rule


@dataclasses.dataclass(frozen=True, kw_only=True)
class StrategyTraits:
    """What a strategy can do.

    Attributes:
        class_name: The name of its class in TensorFlow.
        several_devices: Whether one process trains on several devices.
        is_clustered: Whether it runs on the members of a cluster.
        is_asynchronous: Whether workers take steps without waiting for each other, on variables
            that parameter servers hold.
        all_reduce: The algorithms that `runtime.all_reduce_alg` may name.
        logical_replicas: Whether `runtime.logical_replicas` may be set.
        compiles_on_gpus: Whether `runtime.enable_xla: auto` compiles steps on GPUs.
        uses_tpu: Whether it trains on TPUs.
        evaluates_padding: Whether evaluations also compute the rows that pad the last batches, so
            that all of their steps have the same shapes.
        runtime_rules: Settings of `runtime` that it does not support.
        experiment_rules: Settings of other sections that it does not support.
    """

    class_name: str = ""
    several_devices: bool = False
    is_clustered: bool = False
    is_asynchronous: bool = False
    all_reduce: tuple[str, ...] = ()
    logical_replicas: bool = False
    compiles_on_gpus: bool = False
    uses_tpu: bool = False
    evaluates_padding: bool = False
    runtime_rules: tuple[Rule, ...] = ()
    experiment_rules: tuple[Rule, ...] = ()

    @property
    def uses_one_device(self) -> bool:
        """Whether it has one replica, in one process."""
        return not (self.several_devices or self.is_clustered or self.uses_tpu)

    @property
    def synchronous_workers(self) -> bool:
        """Whether several workers take each step together."""
        return self.is_clustered and not self.is_asynchronous


# Workers run graphs, and do not wait for each other.
_PARAMETER_SERVER = StrategyTraits(
    class_name="ParameterServerStrategyV2",
    is_clustered=True,
    is_asynchronous=True,
    runtime_rules=(
        Rule("worker_hosts", lambda r: r.worker_hosts,
             "contains no parameter servers; describe the cluster in TF_CONFIG"),
        Rule("mixed_precision_dtype", lambda r: r.mixed_precision_dtype == "float16",
             "float16 requires loss scaling, which Keras does not support under "
             "`parameter_server`\nallowed: null, 'float32', 'bfloat16'"),
        Rule("enable_xla", lambda r: r.enable_xla,
             "XLA cannot compile steps whose variables are on other machines"),
        Rule("run_eagerly", lambda r: r.run_eagerly,
             "workers run only graphs; allowed: false under `parameter_server`"),
        Rule("tf_data_service", lambda r: r.tf_data_service,
             "each worker makes the batches of its own steps\n"
             "allowed: null under `parameter_server`"),
        Rule("numerics", lambda r: r.is_portable,
             "got 'portable' under `parameter_server`, where the order of updates varies\n"
             "allowed: native"),
    ),
    experiment_rules=(
        Rule("task.train_data.max_bad_images",
             # A task of a user may lack settings.
             lambda c: getattr(c.task.train_data, "max_bad_images", 0),
             "workers run only graphs, which cannot count bad images\n"
             "allowed: 0 under `parameter_server`"),
        Rule("task.train_data.source",
             lambda c: getattr(getattr(c.task.train_data, "traits", None), "needs_python", False),
             "workers run only graphs, which cannot read source {value}\n"
             "use TFRecord files, or another strategy than `parameter_server`"),
        Rule("task.train_data.enable_tf_data_service",
             lambda c: c.task.train_data.enable_tf_data_service,
             "each worker makes the batches of its own steps\n"
             "allowed: false under `parameter_server`"),
        Rule("trainer.profile_steps", lambda c: c.trainer.profile_steps,
             "the chief writes the trace, but other processes run the steps\n"
             "allowed: [] under `parameter_server`"),
        Rule("trainer.fine_tuning", lambda c: c.trainer.fine_tuning is not None,
             "is not supported under `parameter_server`, whose workers do not wait for each other\n"
             "allowed: null, or another runtime.distribution_strategy"),
    ),
)  # fmt: skip

STRATEGIES = {
    "off": StrategyTraits(
        class_name="_DefaultDistributionStrategy", logical_replicas=True, compiles_on_gpus=True
    ),
    "one_device": StrategyTraits(
        class_name="OneDeviceStrategy", logical_replicas=True, compiles_on_gpus=True
    ),
    "mirrored": StrategyTraits(
        class_name="MirroredStrategy",
        several_devices=True,
        all_reduce=("nccl", "hierarchical_copy", "reduction_to_one_device"),
        logical_replicas=True,
        compiles_on_gpus=True,
    ),
    "multi_worker_mirrored": StrategyTraits(
        class_name="CollectiveAllReduceStrategy",
        several_devices=True,
        is_clustered=True,
        all_reduce=("auto", "ring", "nccl"),
        logical_replicas=True,
        compiles_on_gpus=True,
    ),
    "parameter_server": _PARAMETER_SERVER,
    "tpu": StrategyTraits(
        class_name="TPUStrategyV2",
        uses_tpu=True,
        evaluates_padding=True,
        runtime_rules=(
            Rule("numerics", lambda r: r.is_portable,
                 "got 'portable' under `tpu`, but only CPUs compute the same\nallowed: native"),
            Rule("num_gpus", lambda r: r.num_gpus,
                 "got {value}, which has no effect under `tpu`", "no-effect"),
        ),
    ),
}  # fmt: skip
