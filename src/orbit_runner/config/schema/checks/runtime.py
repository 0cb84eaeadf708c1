"""Checks of combinations of settings in `runtime`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orbit_runner.config.schema.checks.logical_replicas import logical_replica_problems
from orbit_runner.config.schema.data import service_problem

if TYPE_CHECKING:
    from orbit_runner.config.schema.runtime import RuntimeConfig

Problems = Iterator[tuple[str, str]]
_OR_NATIVE = "or runtime.numerics: native"
_NATIVE = "allowed: native"


def runtime_problems(runtime: RuntimeConfig) -> Problems:
    """Yields (field, message) for settings that contradict each other."""
    for rule in (
        _device_problems,
        _all_reduce_problems,
        _cluster_problems,
        _parameter_server_problems,
        _loss_scale_problems,
        _data_service_problems,
        _portable_problems,
        logical_replica_problems,
    ):
        yield from rule(runtime)


def inert_settings(runtime: RuntimeConfig) -> Problems:
    """Yields (field, message) for settings that have no effect in combination with others."""
    for rule in (_inert_all_reduce, _inert_hosts, _inert_loss_scale, _inert_tpu):
        yield from rule(runtime)


def _device_problems(runtime: RuntimeConfig) -> Problems:
    strategy, split = runtime.distribution_strategy, runtime.parts > 1
    several = runtime.traits.several_devices or (strategy == "one_device" and split)
    if not several and runtime.num_gpus > 1 and strategy != "tpu":
        yield "num_gpus", f"got {runtime.num_gpus} under `{strategy}`, which uses one device"
    if runtime.num_virtual_devices == 1:
        return
    got = f"got {runtime.num_virtual_devices}"
    if strategy == "multi_worker_mirrored":
        kind = "whole GPUs" if runtime.num_gpus else "one CPU per worker"
        yield (
            "num_virtual_devices",
            f"{got} under `{strategy}`, which uses {kind}\n"
            "start more workers: runner launch --workers=N",
        )
    elif not several:
        yield (
            "num_virtual_devices",
            f"{got} under `{strategy}`, which does not support virtual devices",
        )
    elif runtime.num_gpus not in (0, 1):
        yield (
            "num_virtual_devices",
            f"{got} with num_gpus: {runtime.num_gpus}, but virtual devices are parts of one CPU or "
            "of one GPU\nallowed: 1; or set runtime.num_gpus to 0 or 1",
        )


def _all_reduce_problems(runtime: RuntimeConfig) -> Problems:
    strategy, chosen = runtime.distribution_strategy, runtime.all_reduce_alg
    allowed = runtime.traits.all_reduce
    if chosen is not None and allowed and chosen not in allowed:
        yield "all_reduce_alg", f"got {chosen!r} under `{strategy}`\nallowed: {', '.join(allowed)}"
    elif chosen == "nccl" and runtime.divides_gpu:
        others = ", ".join(name for name in allowed if name != "nccl")
        yield (
            "all_reduce_alg",
            f"got 'nccl', which requires a GPU for each replica, but num_virtual_devices is "
            f"{runtime.num_virtual_devices} with num_gpus: 1\nallowed: null, {others}",
        )


def _inert_all_reduce(runtime: RuntimeConfig) -> Problems:
    strategy, chosen = runtime.distribution_strategy, runtime.all_reduce_alg
    if chosen is None:
        return
    if not runtime.traits.all_reduce:
        yield "all_reduce_alg", f"`{strategy}` does not all-reduce gradients\nallowed: null"
    elif chosen == "nccl" and runtime.num_gpus == 0:
        yield "all_reduce_alg", "nccl requires GPUs, but num_gpus is 0"


def _cluster_problems(runtime: RuntimeConfig) -> Problems:
    strategy = runtime.distribution_strategy
    described = runtime.cluster.jobs()
    if runtime.worker_hosts and runtime.cluster.jobs():
        yield "worker_hosts", "set either this or runtime.cluster, not both"
    if runtime.worker_hosts and runtime.traits.is_asynchronous:
        yield "worker_hosts", "contains no parameter servers; set runtime.cluster instead"
    if described and not runtime.traits.is_clustered:
        yield "cluster", _one_process_message(strategy)
    if runtime.cluster.ps and strategy == "multi_worker_mirrored":
        yield "cluster.ps", f"`{strategy}` has no parameter servers"
    if runtime.num_workers > 1 and not runtime.traits.is_clustered:
        yield (
            "num_workers",
            f"got {runtime.num_workers} under `{strategy}`, which runs in one process\n"
            "allowed: 0, 1; or set runtime.distribution_strategy: multi_worker_mirrored",
        )
    if runtime.remote_cluster and not runtime.traits.is_asynchronous:
        yield (
            "remote_cluster",
            f"is not supported under `{strategy}`\n"
            "set runtime.distribution_strategy: parameter_server",
        )
    if runtime.remote_cluster and (described or runtime.worker_hosts):
        yield (
            "remote_cluster",
            "cannot be combined with runtime.cluster or runtime.worker_hosts; remove them",
        )


def _inert_hosts(runtime: RuntimeConfig) -> Problems:
    if runtime.worker_hosts and not runtime.traits.is_clustered:
        yield "worker_hosts", _one_process_message(runtime.distribution_strategy)


def _one_process_message(strategy: str) -> str:
    return (
        f"describes a cluster, but `{strategy}` runs in one process\n"
        "set runtime.distribution_strategy: multi_worker_mirrored (or parameter_server)"
    )


def _parameter_server_problems(runtime: RuntimeConfig) -> Problems:
    if not runtime.traits.is_asynchronous:
        for field in ("variable_partitioner", "num_parameter_servers"):
            if getattr(runtime, field):
                yield field, f"`{runtime.distribution_strategy}` has no parameter servers"
        return
    if runtime.mixed_precision_dtype == "float16":
        yield (
            "mixed_precision_dtype",
            "float16 requires loss scaling, which Keras does not support under `parameter_server`\n"
            "allowed: null, 'float32', 'bfloat16'",
        )
    if runtime.enable_xla:
        yield "enable_xla", "XLA cannot compile steps whose variables are on other machines"
    if runtime.run_eagerly:
        yield "run_eagerly", "workers run only graphs; allowed: false under `parameter_server`"
    if runtime.tf_data_service:
        yield (
            "tf_data_service",
            "each worker makes the batches of its own steps\n"
            "allowed: null under `parameter_server`",
        )


def _inert_tpu(runtime: RuntimeConfig) -> Problems:
    if runtime.distribution_strategy == "tpu":
        if runtime.num_gpus:
            yield "num_gpus", f"got {runtime.num_gpus}, which has no effect under `tpu`"
        return
    for field in (
        *("tpu", "tpu_zone", "tpu_project", "tpu_platform"),
        "tpu_enable_xla_dynamic_padder",
    ):
        if getattr(runtime, field) is not None:
            yield (
                field,
                f"has no effect under `{runtime.distribution_strategy}`\n"
                "set runtime.distribution_strategy: tpu",
            )


def _data_service_problems(runtime: RuntimeConfig) -> Problems:
    for address in (runtime.tf_data_service or "").split(","):
        problem = service_problem(address.strip()) if runtime.tf_data_service is not None else ""
        if problem:
            yield "tf_data_service", problem


def _portable_problems(runtime: RuntimeConfig) -> Problems:
    if not runtime.is_portable:
        return
    strategy = runtime.distribution_strategy
    if strategy == "tpu" or runtime.num_gpus:
        where = "under `tpu`" if strategy == "tpu" else f"with num_gpus: {runtime.num_gpus}"
        yield "numerics", f"got 'portable' {where}, but only CPUs compute the same\n{_NATIVE}"
    if runtime.traits.is_asynchronous:
        yield (
            "numerics",
            f"got 'portable' under `{strategy}`, where the order of updates varies\n{_NATIVE}",
        )
    if not runtime.deterministic:
        yield "deterministic", f"got false, but numerics is 'portable'\nallowed: true; {_OR_NATIVE}"
    if runtime.enable_xla:
        yield (
            "enable_xla",
            "got true, but numerics is 'portable', and XLA compiles for the processor of the "
            f"machine\nallowed: false; {_OR_NATIVE}",
        )
    if runtime.intra_op_threads > 1:
        yield (
            "intra_op_threads",
            f"got {runtime.intra_op_threads}, but numerics is 'portable', and the number of "
            f"threads changes sums\nallowed: 1, or 0, which then means 1; {_OR_NATIVE}",
        )


def _loss_scale_problems(runtime: RuntimeConfig) -> Problems:
    if runtime.loss_scale is None:
        return
    if isinstance(runtime.loss_scale, str):
        if runtime.loss_scale != "dynamic":
            yield "loss_scale", f"got {runtime.loss_scale!r}, allowed: 'dynamic' or a number"
    elif runtime.loss_scale <= 0:
        yield "loss_scale", f"got {runtime.loss_scale}, allowed: a number above 0"


def _inert_loss_scale(runtime: RuntimeConfig) -> Problems:
    if runtime.loss_scale is not None and runtime.mixed_precision_dtype != "float16":
        yield (
            "loss_scale",
            "only float16 needs a loss scale, but mixed_precision_dtype is not float16",
        )
