"""Checks across sections: batch sizes, tf.data service and parameter servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orbit_runner.config.schema.checks.logical_replicas import share_problems
from orbit_runner.config.schema.modes import EVALUATING, TRAINING

if TYPE_CHECKING:
    from orbit_runner.config.schema.experiment import ExperimentConfig


def batch_problems(
    config: ExperimentConfig, replicas: int, mode: str = "train_and_eval"
) -> Iterator[tuple[str, str]]:
    """Yields (dotted path, message) for batch sizes of a mode that cannot be divided evenly.

    A training batch is divided by the replicas and by the accumulation steps, an evaluation batch
    by the replicas; logical replicas take the place of the others. The message proposes the nearest
    valid sizes.
    """
    pieces, kind = config.trainer.gradient_accumulation_steps, ""
    if config.runtime.logical_replicas:
        yield from share_problems(config, replicas, mode)
        replicas, kind = config.runtime.logical_replicas, "logical "
    shared = f"{replicas} {kind}replica{'s' if replicas > 1 else ''}"
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
            below, above = size // parts * parts, (size // parts + 1) * parts
            near = f"{below} and {above}" if below else str(above)
            yield (
                f"task.{section}.{name}",
                f"got {size}, which is not a multiple of {parts} ({text})\nnearest: {near}",
            )


def missing_service_problems(config: ExperimentConfig) -> Iterator[tuple[str, str]]:
    """Yields (dotted path, message) for sections that enable tf.data service without an address."""
    for section in ("train_data", "validation_data"):
        data = getattr(config.task, section)
        named = data.tf_data_service_address or config.runtime.tf_data_service
        if data.enable_tf_data_service and not named:
            yield (
                f"task.{section}.enable_tf_data_service",
                "has no effect without an address\n"
                f"set task.{section}.tf_data_service_address, or runtime.tf_data_service",
            )


def parameter_server_problems(config: ExperimentConfig) -> Iterator[tuple[str, str]]:
    """Yields (dotted path, message) for settings that `parameter_server` does not support."""
    if not config.runtime.traits.is_asynchronous:
        return
    if not config.trainer.train_tf_function:
        yield (
            "trainer.train_tf_function",
            "workers run only graphs; allowed: true under `parameter_server`",
        )
    if getattr(config.task.train_data, "max_bad_images", 0):
        yield (
            "task.train_data.max_bad_images",
            "workers run only graphs, which cannot count bad images\n"
            "allowed: 0 under `parameter_server`",
        )
    if getattr(config.task.train_data, "source", "") == "array_record":
        yield (
            "task.train_data.source",
            "workers run only graphs, which cannot read ArrayRecord files\n"
            "use TFRecord files, or another strategy than `parameter_server`",
        )
    if config.task.train_data.enable_tf_data_service:
        yield (
            "task.train_data.enable_tf_data_service",
            "each worker makes the batches of its own steps\n"
            "allowed: false under `parameter_server`",
        )
