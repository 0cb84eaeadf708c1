"""`parameter_server`: servers hold the variables, workers compute, this process coordinates."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.addresses import Liveness, probe
from orbit_runner.distribute.cluster.description import Jobs, Member, MemberLost
from orbit_runner.distribute.cluster.liveness import (
    Watch,
    format_members,
    lost_message,
    wait_for_servers,
)
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.tf_internals import (
    CheckpointInitialValueCallable,
    cluster_of,
    default_strategy,
    variable_partitioner,
    wrap_variable_creation,
)
from orbit_runner.utils.log import phase

if TYPE_CHECKING:
    from tensorflow.distribute.experimental.partitioners import Partitioner

    from orbit_runner.distribute.sharded_variables import Variable


_CHIEF = "/job:chief/replica:0/task:0/device:CPU:0"
_LOST = (tf.errors.UnavailableError, tf.errors.AbortedError)


def build_parameter_server(
    runtime: RuntimeConfig, jobs: Jobs
) -> tf.distribute.ParameterServerStrategy:
    """Waits for the servers and returns the strategy over them.

    `jobs` contains the workers, the parameter servers and, unless this process drives the cluster
    from outside, this process as the chief. Raises `MemberLost` if a server does not start in time,
    and `RunnerError` if TensorFlow cannot use the servers.
    """
    _drop_coordinator_log()
    # TensorFlow itself waits five minutes for a missing server, without a message.
    wait_for_servers(servers_of(jobs), timeout=runtime.cluster_start_timeout, tell=phase)
    # Without the evaluator, which runs no server: TensorFlow would wait for it.
    spec = {role: list(jobs[role]) for role in ("chief", "worker", "ps") if jobs.get(role)}
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(spec),
        task_type="chief" if "chief" in spec else None,
        task_id=0,
        rpc_layer="grpc",
    )
    try:
        strategy = tf.distribute.ParameterServerStrategy(
            resolver, partitioner(runtime, len(jobs["ps"]))
        )
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        servers = format_members(servers_of(jobs))
        raise RunnerError(
            f"TensorFlow cannot use the servers {servers}: {first_line(error)}",
            code="server-failed",
        ) from error
    _initialize_before_sharding(strategy)
    replicas = strategy.num_replicas_in_sync
    if replicas != 1:
        raise RunnerError(
            f"each worker has {replicas} visible GPUs, but a step runs on one\n"
            "start one worker per GPU, and set CUDA_VISIBLE_DEVICES to that GPU",
            code="not-supported",
        )
    return strategy


def _drop_coordinator_log() -> None:
    """Drops TensorFlow's log of each failed call to a worker: the watch reports lost workers."""
    if int(os.environ.get("TF_CPP_MIN_LOG_LEVEL") or 0) >= 2:
        log = tf.get_logger()
        log.removeFilter(_is_not_of_coordinator)
        log.addFilter(_is_not_of_coordinator)


def _is_not_of_coordinator(record: logging.LogRecord) -> bool:
    return os.path.basename(record.pathname) != "cluster_coordinator.py"


def _initialize_before_sharding(strategy: tf.distribute.ParameterServerStrategy) -> None:
    """Ensures that variables are initialized as a whole before they are partitioned.

    TensorFlow calls the initializer for each shard, which gives different random numbers and, if
    the initializer depends on the shape, a different variance. A seed would then give different
    weights than under other strategies.
    """

    def wrap(create: Callable[..., Variable]) -> Callable[..., Variable]:
        def create_variable(next_creator: Callable[..., Variable], **kwargs: Any) -> Variable:
            value = kwargs.get("initial_value")
            is_restored = isinstance(value, CheckpointInitialValueCallable)
            if callable(value) and not is_restored and variable_partitioner(strategy) is not None:
                kwargs["initial_value"] = value()
            return create(next_creator, **kwargs)

        return create_variable

    wrap_variable_creation(strategy, wrap)


def partitioner(runtime: RuntimeConfig, servers: int) -> Partitioner | None:
    """Returns the variable partitioner, or None if variables are not partitioned."""
    partitioners = tf.distribute.experimental.partitioners
    shards = runtime.variable_shards or servers
    size = runtime.variable_shard_bytes
    if runtime.variable_partitioner == "fixed":
        return partitioners.FixedShardsPartitioner(shards)
    if runtime.variable_partitioner == "min_size":
        return partitioners.MinSizePartitioner(size, shards)
    if runtime.variable_partitioner == "max_size":
        return partitioners.MaxSizePartitioner(size, runtime.variable_shards or None)
    return None


def servers_of(jobs: Jobs) -> list[Member]:
    """Returns the workers and the parameter servers of a cluster."""
    return [
        Member(role, index, address)
        for role in ("worker", "ps")
        for index, address in enumerate(jobs.get(role, ()))
    ]


def is_asynchronous(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether a strategy keeps its variables on parameter servers."""
    return isinstance(strategy, tf.distribute.ParameterServerStrategy)


def local_strategy(strategy: tf.distribute.Strategy) -> tf.distribute.Strategy:
    """Returns the strategy for computations of this process alone.

    Under `parameter_server`, that is the default strategy, because steps that are not scheduled on
    workers must not run in the scope of the run's own strategy.
    """
    if not is_asynchronous(strategy):
        return strategy
    return default_strategy()  # `tf.distribute.get_strategy` returns the current strategy instead.


def io_device(checkpoint: tf.train.Checkpoint) -> str | None:
    """Returns the device that writes and reads a checkpoint, or None for TensorFlow's choice.

    TensorFlow would choose the parameter servers if they hold variables, but they may not see the
    directory, or see it under another path.
    """
    descendants = tf.train.TrackableView(checkpoint).descendants()
    served = any("/job:ps" in str(getattr(variable, "device", "")) for variable in descendants)
    return _CHIEF if served else None


def strategy_servers(strategy: tf.distribute.ParameterServerStrategy) -> list[Member]:
    """Returns the workers and the parameter servers of a strategy."""
    return servers_of(cluster_of(strategy))


@contextlib.contextmanager
def server_watch_scope(strategy: tf.distribute.Strategy, runtime: RuntimeConfig) -> Iterator[None]:
    """Watches the servers during a `with` block.

    Raises `MemberLost` if a parameter server is lost, or was restarted and has lost its variables.
    A server that hangs counts as lost after `runtime.heartbeat_timeout` seconds without an answer.
    If this thread waits inside TensorFlow for it, the process exits with the exit code of
    `MemberLost`. Does nothing if the strategy has no parameter servers.
    """
    if not is_asynchronous(strategy):
        yield
        return
    servers = strategy_servers(strategy)
    lost = False
    watch = _watches[strategy] = Watch(
        servers,
        silence=float(runtime.heartbeat_timeout),
        patience=float(runtime.cluster_start_timeout),
    )
    watch.start()
    try:
        yield
    except MemberLost:
        lost = True
        raise
    except Exception as error:
        reason = _loss_reason(error, servers)
        if not reason:
            raise
        lost = True
        raise MemberLost(lost_message(reason)) from error
    finally:
        del _watches[strategy]
        # Even deleting a variable waits for a server that hangs. So the watch continues after a
        # loss, and then ends the process.
        if not lost:
            watch.stop()


_watches: dict[tf.distribute.Strategy, Watch] = {}


def check_servers(strategy: tf.distribute.Strategy) -> None:
    """Raises `MemberLost` if a server is lost; does nothing outside of `server_watch_scope`."""
    watch = _watches.get(strategy)
    reason = watch.failure_reason() if watch is not None else ""
    if reason:
        raise MemberLost(lost_message(reason))


def _loss_reason(error: Exception, servers: list[Member]) -> str:
    """Returns which lost parameter server caused an error, and how; "" if none did."""
    cause = _server_error(error)
    if cause is None:
        return ""
    holders = [member for member in servers if member.role == "ps"]
    gone = [m for m in holders if probe(m.address) is not Liveness.ALIVE]
    if not gone and not isinstance(cause, _LOST):
        return ""
    how = f"{format_members(gone)} was lost" if gone else "a parameter server was restarted"
    return f"{how}, and its variables were lost\n  {first_line(cause)}"


def _server_error(error: BaseException | None) -> tf.errors.OpError | None:
    """Returns the TensorFlow error that caused an error, if any."""
    while error is not None:
        if isinstance(error, tf.errors.OpError):
            return error
        error = error.__cause__ or error.__context__
    return None
