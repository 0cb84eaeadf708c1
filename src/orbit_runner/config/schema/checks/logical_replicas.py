"""Checks of `runtime.logical_replicas`, alone and against devices, batches and an earlier run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orbit_runner.config.schema.modes import EVALUATING, TRAINING

if TYPE_CHECKING:
    from orbit_runner.config.schema.experiment import ExperimentConfig
    from orbit_runner.config.schema.runtime import RuntimeConfig

PATH = "runtime.logical_replicas"
_FIELD = "logical_replicas"
Problems = Iterator[tuple[str, str]]


def logical_replica_problems(runtime: RuntimeConfig) -> Problems:
    """Yields (field, message) for settings that logical replicas do not support."""
    if not runtime.logical_replicas:
        return
    logical, strategy = runtime.logical_replicas, runtime.distribution_strategy
    got = f"got {logical}"
    if runtime.traits.is_asynchronous:
        yield _FIELD, f"{got}, but under `{strategy}`, no two workers share a batch\nallowed: 0"
    elif not runtime.traits.logical_replicas:
        yield _FIELD, f"{got}, but `{strategy}` itself divides the batches\nallowed: 0"
    if runtime.run_eagerly:
        yield (
            "run_eagerly",
            f"got true, but {PATH} is {logical}, which needs graphs\nallowed: false",
        )


def share_problems(config: ExperimentConfig, devices: int, mode: str) -> Problems:
    """Yields (dotted path, message) for what the devices of a mode cannot share equally."""
    logical = config.runtime.logical_replicas
    if logical % devices:
        yield PATH, unequal_shares_message(logical, devices)
    rows = getattr(config.task.train_data, "batch_rows_multiple", logical)
    if mode in TRAINING and rows % logical:
        below, above = rows // logical * logical, (rows // logical + 1) * logical
        near = f"{below} and {above}" if below else str(above)
        yield (
            "task.train_data.batch_rows_multiple",
            f"got {rows}, which is not a multiple of {logical} ({PATH})\nnearest: {near}",
        )
    for path, is_set, modes in (
        ("trainer.train_tf_function", config.trainer.train_tf_function, TRAINING),
        ("trainer.eval_tf_function", config.trainer.eval_tf_function, EVALUATING),
    ):
        if mode in modes and not is_set:
            yield path, f"got false, but {PATH} is {logical}, which needs graphs\nallowed: true"


def unequal_shares_message(logical: int, devices: int) -> str:
    """Returns the message for logical replicas that the devices cannot share equally."""
    below, above = logical // devices * devices, (logical // devices + 1) * devices
    near = f"{below} and {above}" if below else str(above)
    return (
        f"got {logical}, which is not a multiple of {devices}, the number of devices that share a "
        f"batch\nnearest: {near}"
    )


def resume_problems(before: RuntimeConfig, now: RuntimeConfig, run: str) -> Problems:
    """Yields (dotted path, message) if a run continues with another number of logical replicas."""
    if before.logical_replicas != now.logical_replicas:
        yield (
            PATH,
            f"got {now.logical_replicas}, but {run} contains a run with {before.logical_replicas}\n"
            f"allowed: {before.logical_replicas}; or use another --model_dir",
        )
