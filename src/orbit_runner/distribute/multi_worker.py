"""`multi_worker_mirrored`: workers that train synchronously and detect the loss of others."""

from __future__ import annotations

import tensorflow as tf

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.barrier import wait_at_barrier
from orbit_runner.distribute.cluster.description import Cluster
from orbit_runner.distribute.cluster.errors import MemberLost
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.tf_internals import (
    CoordinatedJob,
    coordination_leader,
    eager_context,
    normalize_cluster_spec,
)
from orbit_runner.utils.log import phase

_IMPLEMENTATIONS = {
    None: tf.distribute.experimental.CommunicationImplementation.AUTO,
    "auto": tf.distribute.experimental.CommunicationImplementation.AUTO,
    "ring": tf.distribute.experimental.CommunicationImplementation.RING,
    "nccl": tf.distribute.experimental.CommunicationImplementation.NCCL,
}


def build_multi_worker(
    runtime: RuntimeConfig, cluster: Cluster, purpose: str
) -> tf.distribute.Strategy:
    """Waits for the other workers and returns the strategy over all of them.

    `purpose` must be the same text on all workers. Raises `ClusterError` if another worker runs
    something else or the port is in use, and `MemberLost` if another worker does not start in time.
    """
    trainers = cluster.trainers()
    others = [member for member in trainers if member != cluster.me]
    wait_at_barrier(
        cluster, others, purpose=purpose, timeout=runtime.cluster_start_timeout, tell=phase
    )
    jobs = {role: list(cluster.jobs[role]) for role in ("chief", "worker") if role in cluster.jobs}
    spec = tf.train.ClusterSpec(jobs)
    _watch_members(spec, runtime)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        spec, task_type=cluster.me.role, task_id=cluster.me.index, rpc_layer="grpc"
    )
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=_IMPLEMENTATIONS[runtime.effective_all_reduce]
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
            f"{cluster.me}: TensorFlow cannot start a cluster in this process: {first_line(error)}"
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
