"""Builds the `tf.distribute.Strategy` that `runtime.distribution_strategy` names."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import tensorflow as tf

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.barrier import wait_at_barrier
from orbit_runner.distribute.cluster.description import Cluster, MemberLost
from orbit_runner.distribute.cluster.resolver import remote_cluster
from orbit_runner.distribute.devices import note_unused_gpus, select_devices
from orbit_runner.distribute.parameter_servers import build_parameter_server
from orbit_runner.distribute.tpu_strategy import build_tpu_strategy
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.tf_internals import (
    CoordinatedJob,
    collective_keys_scope,
    coordination_leader,
    eager_context,
    normalize_cluster_spec,
)
from orbit_runner.utils.log import phase

_KEYS_PER_STRATEGY = 1000
_first_keys = itertools.count(step=_KEYS_PER_STRATEGY)


@dataclasses.dataclass(frozen=True)
class StrategySpec:
    """The settings and devices that a strategy is built for."""

    runtime: RuntimeConfig
    devices: tuple[str, ...]  # The devices of this process, such as `CPU:0`.
    cluster: Cluster | None = None  # None if the process is not a member of one.
    purpose: str = ""  # Must be the same text on all members of the cluster.


# The algorithms of `runtime.all_reduce_alg` under `mirrored`.
CROSS_DEVICE_OPS = {
    "nccl": tf.distribute.NcclAllReduce,
    "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
    "reduction_to_one_device": tf.distribute.ReductionToOneDevice,
}


def _build_mirrored(spec: StrategySpec) -> tf.distribute.Strategy:
    name = spec.runtime.effective_all_reduce
    ops = None if name is None else CROSS_DEVICE_OPS[name]()
    # TensorFlow finds the members of an all-reduce by a key, and remembers them and the shape of
    # their tensor after the strategy is gone. All strategies start at the same key, so without
    # keys of its own, a run can meet an all-reduce of an earlier run in the same process.
    with collective_keys_scope(next(_first_keys)):
        return tf.distribute.MirroredStrategy(list(spec.devices), cross_device_ops=ops)


def _build_multi_worker_mirrored(spec: StrategySpec) -> tf.distribute.Strategy:
    """Waits for the other workers and returns the strategy over all of them.

    Raises `ClusterError` if another worker runs something else or the port is in use, and
    `MemberLost` if another worker does not start in time.
    """
    runtime = spec.runtime
    cluster = spec.cluster
    assert cluster is not None
    others = [member for member in cluster.trainers() if member != cluster.me]
    wait_at_barrier(
        cluster, others, purpose=spec.purpose, timeout=runtime.cluster_start_timeout, tell=phase
    )
    jobs = {role: list(cluster.jobs[role]) for role in ("chief", "worker") if role in cluster.jobs}
    cluster_spec = tf.train.ClusterSpec(jobs)
    _watch_members(cluster_spec, runtime)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster_spec, task_type=cluster.me.role, task_id=cluster.me.index, rpc_layer="grpc"
    )
    kinds = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=kinds[(runtime.effective_all_reduce or "auto").upper()]
    )
    try:
        return tf.distribute.MultiWorkerMirroredStrategy(resolver, options)
    except (tf.errors.UnavailableError, tf.errors.DeadlineExceededError) as error:
        raise MemberLost(
            f"{cluster.me}: the other workers responded, but then did not start: "
            f"{first_line(error)}"
        ) from error
    except RuntimeError as error:
        raise RunnerError(
            f"{cluster.me}: TensorFlow cannot start a cluster in this process: {first_line(error)}",
            code="server-failed",
        ) from error


def _watch_members(spec: tf.train.ClusterSpec, runtime: RuntimeConfig) -> None:
    normal = normalize_cluster_spec(spec)
    jobs = [CoordinatedJob(name=job, num_tasks=normal.num_tasks(job)) for job in normal.jobs]
    eager_context().configure_coordination_service(
        "standalone",
        service_leader=coordination_leader(normal),
        coordinated_jobs=jobs,
        cluster_register_timeout_in_ms=1000 * runtime.cluster_start_timeout,
        heartbeat_timeout_in_ms=1000 * runtime.heartbeat_timeout,
    )


def _build_parameter_server(spec: StrategySpec) -> tf.distribute.Strategy:
    jobs = spec.cluster.jobs if spec.cluster else remote_cluster(spec.runtime)
    return build_parameter_server(spec.runtime, jobs)


# To add a strategy, add its name to `config.schema.strategies.STRATEGIES` and a line here.
FACTORIES: dict[str, Callable[[StrategySpec], tf.distribute.Strategy]] = {
    "off": lambda spec: tf.distribute.get_strategy(),
    "one_device": lambda spec: tf.distribute.OneDeviceStrategy(spec.devices[0]),
    "mirrored": _build_mirrored,
    "multi_worker_mirrored": _build_multi_worker_mirrored,
    "parameter_server": _build_parameter_server,
    "tpu": lambda spec: build_tpu_strategy(spec.runtime),
}


def build_strategy(
    runtime: RuntimeConfig,
    cluster: Cluster | None = None,
    purpose: str = "",
) -> tf.distribute.Strategy:
    """Configures the devices and returns the strategy over them.

    `cluster` is None if this process is not a member of a cluster. `purpose` must be the same text
    on all members of the cluster, such as a config's fingerprint. Raises `DeviceError` if requested
    devices are not available, and `MemberLost` if another member does not start in time.
    """
    note_unused_gpus(runtime)
    spec = StrategySpec(runtime, select_devices(runtime), cluster, purpose)
    return FACTORIES[runtime.distribution_strategy](spec)
