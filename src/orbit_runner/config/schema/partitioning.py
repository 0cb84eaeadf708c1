"""Settings and checks for splitting batches of images over the devices of a replica."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from orbit_runner.config.schema.modes import EVALUATING, TRAINING
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.config.schema.tpu_platforms import find_platform, unknown_platform_message

if TYPE_CHECKING:
    from orbit_runner.config.schema.experiment import ExperimentConfig

Problems = Iterator[tuple[str, str]]

SPLITTING_STRATEGIES = ("one_device", "mirrored", "tpu")
_AXES = ("batch", "height", "width", "channels")


@dataclasses.dataclass(frozen=True)
class Split:
    """The parts of a batch, for training or for evaluation."""

    section: str  # `train` or `eval`.
    path: str  # Dotted path of the setting; that in `task` if nothing is set.
    dims: tuple[int, ...] = ()  # Parts along each dimension; () if not set.

    @property
    def parts(self) -> int:
        """The number of devices per replica."""
        return math.prod(self.dims)

    def __str__(self) -> str:
        return f"{list(self.dims)} ({self.parts} part{'s' if self.parts > 1 else ''})"


def _declared_splits(config: ExperimentConfig, section: str) -> tuple[Split, Split]:
    field = f"{section}_input_partition_dims"
    runtime = Split(section, f"runtime.{field}", tuple(getattr(config.runtime, field) or ()))
    return runtime, Split(section, f"task.{field}", tuple(getattr(config.task, field) or ()))


def find_split(config: ExperimentConfig, is_training: bool) -> Split:
    """Returns the split set in `runtime`, or else the one in `task`, as Model Garden does."""
    runtime, task = _declared_splits(config, "train" if is_training else "eval")
    return runtime if runtime.dims else task


def partition_dims(config: ExperimentConfig, is_training: bool) -> tuple[int, ...] | None:
    """Returns the parts of a batch along each dimension, or None if the batch is not split.

    For example, (1, 2, 2, 1) for batch, height, width and channels.
    """
    split = find_split(config, is_training)
    return split.dims if split.parts > 1 else None


def effective_splits(config: ExperimentConfig, mode: str) -> list[Split]:
    """Returns the splits that are used in a mode, training first."""
    wanted = ((True, mode in TRAINING), (False, mode in EVALUATING))
    return [find_split(config, is_training) for is_training, used in wanted if used]


def effective_runtime(config: ExperimentConfig, mode: str) -> RuntimeConfig:
    """Returns `runtime` with the partition dims that are used in a mode, from `runtime` or `task`.

    Its `parts` and `num_replicas` are then correct for this mode.
    """
    dims = {split.section: list(split.dims) or None for split in effective_splits(config, mode)}
    return config.runtime.replace(
        train_input_partition_dims=dims.get("train"), eval_input_partition_dims=dims.get("eval")
    )


def setting_problems(config: ExperimentConfig) -> Problems:
    """Yields (dotted path, message) for settings that contradict each other in any mode."""
    runtime = config.runtime
    products = {1}
    for section in ("train", "eval"):
        by_runtime, by_task = _declared_splits(config, section)
        if by_runtime.dims and by_task.dims and by_runtime.dims != by_task.dims:
            yield (
                by_task.path,
                f"got {list(by_task.dims)}, but {by_runtime.path} is {list(by_runtime.dims)}\n"
                "set only one of them",
            )
        for split in (by_runtime, by_task):
            yield from _dims_problems(split, config.task.input_rank)
            products.add(split.parts)
    if runtime.num_cores_per_replica not in products:
        yield (
            "runtime.num_cores_per_replica",
            f"got {runtime.num_cores_per_replica}, which is not the product of any partition dims\n"
            f"allowed: {', '.join(map(str, sorted(products)))}; "
            "1: the product of the partition dims",
        )
    if runtime.tpu_platform is not None and find_platform(runtime.tpu_platform) is None:
        yield "runtime.tpu_platform", unknown_platform_message(runtime.tpu_platform)


def _dims_problems(split: Split, rank: int) -> Problems:
    if split.dims and len(split.dims) != rank:
        axes = f": {', '.join(_AXES)}" if rank == len(_AXES) else ""
        yield split.path, f"got {list(split.dims)}, expected {rank} numbers{axes}"
    elif split.dims and min(split.dims) < 1:
        yield split.path, f"got {list(split.dims)}, allowed: numbers of at least 1"


def shape_problems(path: str, dims: Sequence[int], shape: Sequence[int | None]) -> Problems:
    """Yields (dotted path, message) for dimensions of a batch that their parts do not divide.

    `path` is the setting to blame. `shape` begins with the batch; None is an unknown size.
    """
    if len(shape) != len(dims):
        yield (
            path,
            f"got {list(dims)}, {len(dims)} numbers, but the input has {len(shape)} dimensions",
        )
        return
    names = _AXES if len(dims) == len(_AXES) else tuple(f"dimension {n}" for n in range(len(dims)))
    for name, parts, size in zip(names, dims, shape, strict=True):
        if size is not None and size % parts:
            fitting = [str(n) for n in range(1, size + 1) if size % n == 0]
            yield (
                path,
                f"got {list(dims)}, but the input's size along {name} is {size}, "
                f"not a multiple of {parts}\n"
                f"allowed for {name}: {', '.join(fitting)}",
            )
