"""Checks whether batches can be split over devices as configured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from orbit_runner.config.schema.checks.batch import batch_problems
from orbit_runner.config.schema.partitioning import (
    SPLITTING_STRATEGIES,
    Split,
    effective_runtime,
    effective_splits,
    shape_problems,
)
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.config.schema.tpu_platforms import find_platform

if TYPE_CHECKING:
    from orbit_runner.config.schema.experiment import ExperimentConfig

Problems = Iterator[tuple[str, str]]

_DATA = {"train": "train_data", "eval": "validation_data"}


def run_problems(config: ExperimentConfig, mode: str) -> Problems:
    """Yields (dotted path, message) for problems with splitting batches in a mode.

    `setting_problems` must not have found any problems.
    """
    splits = effective_splits(config, mode)
    if len({split.parts for split in splits}) > 1:
        yield _unequal_parts_problem(*splits)
        return
    for split in splits:
        if split.parts > 1:
            yield from _device_problems(split, config.runtime)
            yield from _image_problems(split, config)
    yield from _batch_size_problems(splits, config, mode)


def _unequal_parts_problem(train: Split, evaluation: Split) -> tuple[str, str]:
    got = str(evaluation) if evaluation.dims else "null (1 part)"
    other = str(train) if train.dims else "null (1 part)"
    return (
        evaluation.path,
        f"got {got}, but {train.path} is {other}; both use the same replicas\n"
        "set both to the same product, or run --mode=train and --mode=eval separately",
    )


def _device_problems(split: Split, runtime: RuntimeConfig) -> Problems:
    strategy, got = runtime.distribution_strategy, f"got {split}"
    if runtime.logical_replicas:
        yield (
            "runtime.logical_replicas",
            f"got {runtime.logical_replicas}, but {split.path} is {split}; only one of them can "
            "divide a batch",
        )
    if strategy not in SPLITTING_STRATEGIES:
        yield (
            split.path,
            f"{got} under `{strategy}`, whose replicas have one device each\n"
            f"allowed: runtime.distribution_strategy: {', '.join(SPLITTING_STRATEGIES)}",
        )
        return
    if strategy != "tpu" and runtime.enable_xla:
        yield (
            "runtime.enable_xla",
            f"got true, but {split.path} is {split}; XLA compiles for one device",
        )
    if strategy != "tpu" and split.dims[-1] > 1:
        yield (
            split.path,
            f"{got} under `{strategy}`; only TPUs split channels\nallowed: 1 for channels",
        )
    devices, reason = _device_count(runtime)
    if devices is None or devices % split.parts == 0:
        return
    if strategy == "tpu":
        advice = f"allowed: products that divide {devices}"
    else:
        advice = f"set runtime.{runtime.device_field} to {split.parts} or a multiple of it"
    yield split.path, f"{got}, but {reason}\n{advice}"


def _device_count(runtime: RuntimeConfig) -> tuple[int | None, str]:
    if runtime.distribution_strategy == "tpu":
        platform = find_platform(runtime.tpu_platform or "")
        if platform is None:
            return None, ""
        count, each = platform.devices, "core" if platform.mesh[-1] > 1 else "chip"
        some = f"{count} device{'s' if count > 1 else ''}"
        return count, f"a {platform.name} has {some}, one per {each}"
    if runtime.num_gpus < 0:
        return None, ""
    count = getattr(runtime, runtime.device_field)
    return count, f"runtime.{runtime.device_field} is {count}"


def _image_problems(split: Split, config: ExperimentConfig) -> Problems:
    shape = config.task.image_shape(_DATA[split.section])
    if shape is not None:
        yield from shape_problems(split.path, split.dims, (None, *shape))


def _batch_size_problems(splits: Sequence[Split], config: ExperimentConfig, mode: str) -> Problems:
    runtime = effective_runtime(config, mode)
    replicas = runtime.num_replicas()
    if runtime.distribution_strategy == "tpu":
        devices, _ = _device_count(runtime)
        replicas = devices // runtime.parts if devices else None
        if replicas:
            yield from batch_problems(config, replicas, mode)
    for split in splits:
        if split.parts > 1:
            yield from _batch_part_problems(split, config, replicas or 1)


def _batch_part_problems(split: Split, config: ExperimentConfig, replicas: int) -> Problems:
    section, parts = _DATA[split.section], split.dims[0]
    pieces = config.trainer.gradient_accumulation_steps if split.section == "train" else 1
    size = getattr(config.task, section).global_batch_size
    shares = replicas * pieces
    # A batch size that the number of shares does not divide is reported by `batch_problems`.
    if size % shares == 0 and (size // shares) % parts:
        yield (
            f"task.{section}.global_batch_size",
            f"got {size}: {size // shares} per replica and step is not a multiple of {parts}, "
            f"the number of parts of the batch in {split.path}\n"
            f"allowed: a multiple of {shares * parts}",
        )
