"""`parameter_server`: servers hold the variables, workers compute, this process tells them what."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.distribute.cluster.description import Jobs, Member
from orbit_runner.distribute.cluster.errors import MemberLost
from orbit_runner.distribute.cluster.liveness import (
    Sign,
    Watch,
    format_members,
    lost_message,
    sign_of_life,
    wait_for_servers,
)
from orbit_runner.errors import RunnerError, first_line
from orbit_runner.utils.log import phase

_CHIEF = "/job:chief/replica:0/task:0/device:CPU:0"
_LOST = (tf.errors.UnavailableError, tf.errors.AbortedError)


def build_parameter_server(
    runtime: RuntimeConfig, jobs: Jobs
) -> tf.distribute.ParameterServerStrategy:
    """Waits for the servers and builds the strategy over them.

    Args:
        runtime: The settings.
        jobs: The cluster: workers, parameter servers, and this process as the chief unless it
            drives the cluster from outside.

    Returns:
        The strategy.

    Raises:
        MemberLost: A server did not come.
        RunnerError: TensorFlow cannot use the servers.
    """
    _drop_coordinator_log()
    # TensorFlow itself waits five minutes for a server that is not there, and says nothing.
    wait_for_servers(servers_of(jobs), timeout=runtime.cluster_start_timeout, tell=phase)
    # An evaluator is no server: TensorFlow would wait for it.
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
            f"TensorFlow cannot use the servers {servers}: {first_line(error)}"
        ) from error
    _make_whole_first(strategy.extended)
    replicas = strategy.num_replicas_in_sync
    if replicas != 1:
        raise RunnerError(
            f"the workers show {replicas} GPUs each, and a step runs on one\n"
            "start a worker for each GPU: CUDA_VISIBLE_DEVICES says which it sees"
        )
    return strategy


def _drop_coordinator_log() -> None:
    """Drops what TensorFlow logs of each failed call to a worker: the watch reports the worker."""
    if int(os.environ.get("TF_CPP_MIN_LOG_LEVEL") or 0) >= 2:
        log = tf.get_logger()
        log.removeFilter(_is_not_of_coordinator)
        log.addFilter(_is_not_of_coordinator)


def _is_not_of_coordinator(record: logging.LogRecord) -> bool:
    return os.path.basename(record.pathname) != "cluster_coordinator.py"


def _make_whole_first(extended: Any) -> None:
    """Has variables drawn as a whole before they are cut.

    TensorFlow lets initializers draw each piece by itself, with other numbers and, for those that
    look at the shape, with another variance. A seed would not give the weights it gives elsewhere.
    """
    create = extended._create_variable

    def created(next_creator: Any, **kwargs: Any) -> Any:
        value = kwargs.get("initial_value")
        restored = isinstance(value, tf.__internal__.tracking.CheckpointInitialValueCallable)
        if callable(value) and not restored and extended._variable_partitioner is not None:
            kwargs["initial_value"] = value()
        return create(next_creator, **kwargs)

    extended._create_variable = created


def partitioner(runtime: RuntimeConfig, servers: int) -> Any:
    """Returns what cuts variables over the parameter servers; None where they stay whole.

    Args:
        runtime: The settings.
        servers: The number of parameter servers.
    """
    made = tf.distribute.experimental.partitioners
    shards, size = runtime.variable_shards or servers, runtime.variable_shard_bytes
    if runtime.variable_partitioner == "fixed":
        return made.FixedShardsPartitioner(shards)
    if runtime.variable_partitioner == "min_size":
        return made.MinSizePartitioner(size, shards)
    if runtime.variable_partitioner == "max_size":
        return made.MaxSizePartitioner(size, runtime.variable_shards or None)
    return None


def servers_of(jobs: Jobs) -> list[Member]:
    """Returns the workers and the parameter servers of a cluster."""
    return [
        Member(role, index, address)
        for role in ("worker", "ps")
        for index, address in enumerate(jobs.get(role, ()))
    ]


def is_asynchronous(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether a strategy has its variables on parameter servers."""
    return isinstance(strategy, tf.distribute.ParameterServerStrategy)


def own_strategy(strategy: tf.distribute.Strategy) -> tf.distribute.Strategy:
    """Returns the strategy for what this process computes by itself.

    Args:
        strategy: The strategy of the run. Under `parameter_server`, steps that are not scheduled on
            workers may not run in its scope.
    """
    if not is_asynchronous(strategy):
        return strategy
    from tensorflow.python.distribute import distribute_lib  # get_strategy() gives that in scope

    return distribute_lib._get_default_strategy()


def io_device(checkpoint: tf.train.Checkpoint) -> str | None:
    """Returns the device that writes and reads a checkpoint's files; None for TensorFlow's choice.

    That would be the parameter servers, which may not see the folder, or see it under another name.

    Args:
        checkpoint: The checkpoint.
    """
    found = tf.train.TrackableView(checkpoint).descendants()
    served = any("/job:ps" in str(getattr(variable, "device", "")) for variable in found)
    return _CHIEF if served else None


def strategy_servers(strategy: tf.distribute.ParameterServerStrategy) -> list[Member]:
    """Returns the workers and the parameter servers of a strategy."""
    return servers_of(strategy._cluster_resolver.cluster_spec().as_dict())


@contextlib.contextmanager
def servers_watched(strategy: tf.distribute.Strategy, runtime: RuntimeConfig) -> Iterator[None]:
    """Looks after the servers for the time of a `with` block.

    Turns errors that a lost parameter server causes into `MemberLost`. Where this thread waits
    inside TensorFlow for a server that hangs, the whole process is ended with its exit code.

    Args:
        strategy: Where the block runs; nothing is done where it has no servers.
        runtime: Says how long a server may be silent.

    Raises:
        MemberLost: A parameter server is gone, or is another process now, without the variables.
    """
    if not is_asynchronous(strategy):
        yield
        return
    servers, lost = strategy_servers(strategy), False
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
        reason = _loss(error, servers)
        if not reason:
            raise
        lost = True
        raise MemberLost(lost_message(reason)) from error
    finally:
        del _watches[strategy]
        # Even to let go of a variable, Python waits for a server that hangs. Then the watch, which
        # goes on after a loss, ends the process.
        if not lost:
            watch.stop()


_watches: dict[tf.distribute.Strategy, Watch] = {}


def check_servers(strategy: tf.distribute.Strategy) -> None:
    """Sees whether all servers are there, as far as they are looked after.

    Args:
        strategy: Of the servers.

    Raises:
        MemberLost: One is lost.
    """
    watch = _watches.get(strategy)
    reason = watch.lost() if watch is not None else ""
    if reason:
        raise MemberLost(lost_message(reason))


def _loss(error: Exception, servers: list[Member]) -> str:
    """Returns which parameter server is behind an error; "" if none is."""
    cause = _server_error(error)
    if cause is None:
        return ""
    holders = [member for member in servers if member.role == "ps"]
    gone = [m for m in holders if sign_of_life(m.address) is not Sign.ALIVE]
    if not gone and not isinstance(cause, _LOST):
        return ""
    who = format_members(gone) if gone else "a parameter server, which was started anew since,"
    return f"{who} was lost, and variables with it\n  {first_line(cause)}"


def _server_error(error: BaseException | None) -> tf.errors.OpError | None:
    """Returns the error of TensorFlow that is behind an error, if any."""
    while error is not None:
        if isinstance(error, tf.errors.OpError):
            return error
        error = error.__cause__ or error.__context__
    return None
