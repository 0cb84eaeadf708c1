"""Checks of the whole tree that need to know the number of replicas."""

from __future__ import annotations

from collections.abc import Iterator

from orbit_runner.config.experiment import ExperimentConfig


def batch_problems(config: ExperimentConfig, replicas: int) -> Iterator[tuple[str, str]]:
    """Yields batches that do not divide by the replicas and the pieces of accumulation.

    Args:
        config: The experiment.
        replicas: The number of replicas.

    Yields:
        Dotted path and message; the message proposes the nearest sizes that do.
    """
    pieces = config.trainer.gradient_accumulation_steps
    for section, parts in (("train_data", replicas * pieces), ("validation_data", replicas)):
        size = getattr(config.task, section).global_batch_size
        if size % parts:
            below, above = size // parts * parts, (size // parts + 1) * parts
            near = f"{below} and {above}" if below else str(above)
            shared = f"{replicas} replica{'s' if replicas > 1 else ''}" + (
                f" × {pieces} accumulation steps" if parts != replicas else ""
            )
            yield (
                f"task.{section}.global_batch_size",
                f"got {size}, which does not divide by {parts} ({shared})\nnearest: {near}",
            )
