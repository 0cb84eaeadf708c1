"""Checks of `trainer.fine_tuning` against the runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbit_runner.config.schema.experiment import ExperimentConfig


def fine_tuning_problems(config: ExperimentConfig) -> Iterator[tuple[str, str]]:
    """Yields (dotted path, message) if layers cannot be frozen under this strategy."""
    if config.trainer.fine_tuning is not None and config.runtime.traits.is_asynchronous:
        yield (
            "trainer.fine_tuning",
            "is not supported under `parameter_server`, whose workers do not wait for each other\n"
            "allowed: null, or another runtime.distribution_strategy",
        )
