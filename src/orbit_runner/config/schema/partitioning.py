"""How batches of images are split over the devices that share a replica: settings and rules."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from orbit_runner.config.schema.modes import EVALUATING, TRAINING
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.config.schema.tpu_platforms import find_platform, unknown_platform

if TYPE_CHECKING:
    from orbit_runner.config.schema.experiment import ExperimentConfig

Found = Iterator[tuple[str, str]]

SPLITTING = ("one_device", "mirrored", "tpu")
_AXES = ("batch", "height", "width", "channels")


@dataclasses.dataclass(frozen=True)
class Split:
    """The parts of a batch, as set for training or for evaluation.

    Attributes:
        section: `train` or `eval`.
        path: Dotted path of the setting that says so; Model Garden's place where none does.
        dims: Parts along each dimension; () where nothing is set.
    """

    section: str
    path: str
    dims: tuple[int, ...] = ()

    @property
    def parts(self) -> int:
        """The number of devices that share a replica."""
        return math.prod(self.dims)

    def __str__(self) -> str:
        return f"{list(self.dims)}, {self.parts} part{'s' if self.parts > 1 else ''}"


def _places(config: ExperimentConfig, section: str) -> tuple[Split, Split]:
    field = f"{section}_input_partition_dims"
    runtime = Split(section, f"runtime.{field}", tuple(getattr(config.runtime, field) or ()))
    return runtime, Split(section, f"task.{field}", tuple(getattr(config.task, field) or ()))


def find_split(config: ExperimentConfig, is_training: bool) -> Split:
    """Returns the split that is set under `runtime`, or else under `task`, as in Model Garden.

    Args:
        config: The experiment.
        is_training: Whether that of training is asked for, or that of evaluation.
    """
    runtime, task = _places(config, "train" if is_training else "eval")
    return runtime if runtime.dims else task


def partition_dims(config: ExperimentConfig, is_training: bool) -> tuple[int, ...] | None:
    """Returns the parts of a batch along each dimension.

    Args:
        config: The experiment.
        is_training: Whether those of training are asked for, or those of evaluation.

    Returns:
        Such as (1, 2, 2, 1) for batch, height, width, channels; None where the batch stays whole.
    """
    split = find_split(config, is_training)
    return split.dims if split.parts > 1 else None


def effective_splits(config: ExperimentConfig, mode: str) -> list[Split]:
    """Returns the splits that hold in a mode, that of training first.

    Args:
        config: The experiment.
        mode: One of `orbit_runner.config.schema.modes.MODES`.
    """
    wanted = ((True, mode in TRAINING), (False, mode in EVALUATING))
    return [find_split(config, is_training) for is_training, used in wanted if used]


def effective_runtime(config: ExperimentConfig, mode: str) -> RuntimeConfig:
    """Returns `runtime` with the partition dims that hold in a mode, wherever they are set.

    So `runtime.parts` and `runtime.num_replicas` are right for what is about to run.

    Args:
        config: The experiment.
        mode: One of `orbit_runner.config.schema.modes.MODES`.
    """
    dims = {split.section: list(split.dims) or None for split in effective_splits(config, mode)}
    return config.runtime.replace(
        train_input_partition_dims=dims.get("train"), eval_input_partition_dims=dims.get("eval")
    )


def setting_problems(config: ExperimentConfig) -> Found:
    """Yields what the settings contradict each other in, whatever the mode.

    Args:
        config: The experiment.

    Yields:
        Dotted path and message.
    """
    runtime = config.runtime
    products = {1}
    for section in ("train", "eval"):
        by_runtime, by_task = _places(config, section)
        if by_runtime.dims and by_task.dims and by_runtime.dims != by_task.dims:
            yield (
                by_task.path,
                f"got {list(by_task.dims)}, and {by_runtime.path} is {list(by_runtime.dims)}\n"
                "set one of the two",
            )
        for split in (by_runtime, by_task):
            yield from _form_problems(split, config.task.input_rank)
            products.add(split.parts)
    if runtime.num_cores_per_replica not in products:
        yield (
            "runtime.num_cores_per_replica",
            f"got {runtime.num_cores_per_replica}, which no partition dims multiply to\n"
            f"allowed: {', '.join(map(str, sorted(products)))}; "
            "1 stands for the product of train_ and eval_input_partition_dims",
        )
    if runtime.tpu_platform is not None and find_platform(runtime.tpu_platform) is None:
        yield "runtime.tpu_platform", unknown_platform(runtime.tpu_platform)


def _form_problems(split: Split, rank: int) -> Found:
    if split.dims and len(split.dims) != rank:
        axes = f": {', '.join(_AXES)}" if rank == len(_AXES) else ""
        yield split.path, f"got {list(split.dims)}, expected {rank} numbers{axes}"
    elif split.dims and min(split.dims) < 1:
        yield split.path, f"got {list(split.dims)}, allowed: numbers of 1 or more"


def shape_problems(path: str, dims: Sequence[int], shape: Sequence[int | None]) -> Found:
    """Yields dimensions of a batch that do not divide by their parts.

    Args:
        path: Dotted path of the setting to blame.
        dims: Parts along each dimension.
        shape: Size of each dimension, the batch first; None where it is not known.

    Yields:
        Dotted path and message.
    """
    if len(shape) != len(dims):
        yield (
            path,
            f"got {list(dims)}, {len(dims)} numbers, and the input has {len(shape)} dimensions",
        )
        return
    names = _AXES if len(dims) == len(_AXES) else tuple(f"dimension {n}" for n in range(len(dims)))
    for name, parts, size in zip(names, dims, shape, strict=True):
        if size is not None and size % parts:
            fitting = [str(n) for n in range(1, size + 1) if size % n == 0]
            yield (
                path,
                f"got {list(dims)}, and {name} {size} of the input is no multiple of {parts}\n"
                f"allowed for {name}: {', '.join(fitting)}",
            )
