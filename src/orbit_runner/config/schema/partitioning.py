"""How the batches of a run are divided over replicas, and over the devices of a TPU replica."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orbit_runner.config.errors import Problem, conflict, not_divisible, not_supported, wrong_type
from orbit_runner.config.schema.experiment import AXES, ExperimentConfig, Split
from orbit_runner.config.schema.modes import EVALUATING, TRAINING
from orbit_runner.config.schema.runtime import LOGICAL_REPLICAS, RuntimeConfig
from orbit_runner.errors import format_count, nearest_multiples

Problems = Iterator[Problem]


def find_split(config: ExperimentConfig, is_training: bool) -> Split:
    """Returns the split set in `runtime`, or else the one in `task`, as Model Garden does."""
    runtime, task = config.declared_splits("train" if is_training else "eval")
    return runtime if runtime.dims else task


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


def batch_problems(
    config: ExperimentConfig, replicas: int, mode: str = "train_and_eval"
) -> Problems:
    """Yields (dotted path, message) for batch sizes of a mode that cannot be divided evenly.

    A training batch is divided by the replicas and by the accumulation steps, an evaluation batch
    by the replicas; logical replicas take the place of the others. The message proposes the nearest
    valid sizes.
    """
    pieces = config.trainer.gradient_accumulation_steps
    kind = ""
    if config.runtime.logical_replicas:
        yield from _share_problems(config, replicas, mode)
        replicas = config.runtime.logical_replicas
        kind = "logical "
    shared = format_count(replicas, f"{kind}replica")
    in_training = shared if pieces == 1 else f"{shared} × {pieces} accumulation steps"
    sizes = [
        ("train_data", "global_batch_size", replicas * pieces, in_training, TRAINING),
        ("validation_data", "global_batch_size", replicas, shared, EVALUATING),
    ]
    data = config.task.train_data
    # If batches have different numbers of rows, these are multiples of a number.
    varies = getattr(data, "batch_tokens", 0) and not getattr(data, "static_batch", False)
    if varies and not config.runtime.logical_replicas:
        sizes.append(
            ("train_data", "batch_rows_multiple", replicas * pieces, in_training, TRAINING)
        )
    for section, name, parts, text, modes in sizes:
        size = getattr(getattr(config.task, section), name)
        if mode in modes and size % parts:
            yield not_divisible(f"task.{section}.{name}", size, parts, f"{parts} ({text})")


def _share_problems(config: ExperimentConfig, devices: int, mode: str) -> Problems:
    logical = config.runtime.logical_replicas
    if logical % devices:
        yield Problem(
            LOGICAL_REPLICAS, unequal_shares_message(logical, devices), code="not-divisible"
        )
    rows = getattr(config.task.train_data, "batch_rows_multiple", logical)
    if mode in TRAINING and rows % logical:
        named = f"{logical} ({LOGICAL_REPLICAS})"
        yield not_divisible("task.train_data.batch_rows_multiple", rows, logical, named)


def unequal_shares_message(logical: int, devices: int) -> str:
    """Returns the message for logical replicas that the devices cannot share equally."""
    return (
        f"got {logical}, which is not a multiple of {devices}, the number of devices that share a "
        f"batch\nnearest: {nearest_multiples(logical, devices)}"
    )


def run_problems(config: ExperimentConfig, mode: str) -> Problems:
    """Yields (dotted path, message) for problems with splitting batches in a mode.

    The problems of the config itself must have been found before.
    """
    splits = effective_splits(config, mode)
    used = [split for split in splits if split.parts > 1]
    if used and not config.runtime.traits.uses_tpu:
        yield from (tpu_needed_problem(split, config.runtime) for split in used)
        return
    if len({split.parts for split in splits}) > 1:
        yield _unequal_parts_problem(*splits)


def _unequal_parts_problem(train: Split, evaluation: Split) -> Problem:
    got = str(evaluation) if evaluation.dims else "null (1 part)"
    train_text = str(train) if train.dims else "null (1 part)"
    return conflict(
        evaluation.path,
        f"got {got}, but {train.path} is {train_text}; both use the same replicas\n"
        "set both to the same product, or run --mode=train and --mode=eval separately",
    )


def tpu_needed_problem(split: Split, runtime: RuntimeConfig) -> Problem:
    """Returns the problem with a split if there is no TPU, on which XLA splits the images."""
    return not_supported(
        split.path,
        f"got {split} under `{runtime.distribution_strategy}`; only a TPU can split the images of "
        "a replica over several devices\n"
        "allowed: null; or set runtime.distribution_strategy to tpu",
    )


def shape_problems(path: str, dims: Sequence[int], shape: Sequence[int | None]) -> Problems:
    """Yields (dotted path, message) for dimensions of a batch that their parts do not divide.

    `path` is the setting to blame. `shape` begins with the batch; None is an unknown size.
    """
    if len(shape) != len(dims):
        yield wrong_type(
            path,
            f"got {list(dims)}, {len(dims)} numbers, but the input has {len(shape)} dimensions",
        )
        return
    names = AXES if len(dims) == len(AXES) else tuple(f"dimension {n}" for n in range(len(dims)))
    for name, parts, size in zip(names, dims, shape, strict=True):
        if size is not None and size % parts:
            fitting = [str(n) for n in range(1, size + 1) if size % n == 0]
            yield Problem(
                path,
                f"got {list(dims)}, but the input's size along {name} is {size}, "
                f"not a multiple of {parts}\n"
                f"allowed for {name}: {', '.join(fitting)}",
                code="not-divisible",
            )
