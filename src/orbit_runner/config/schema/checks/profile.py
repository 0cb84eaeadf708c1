"""Checks of `trainer.profile_steps`, alone and against the runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbit_runner.config.schema.experiment import ExperimentConfig

_PATH = "trainer.profile_steps"


def profile_problems(config: ExperimentConfig) -> Iterator[tuple[str, str]]:
    """Yields (dotted path, message) if the steps are not a range or cannot be profiled."""
    steps = list(config.trainer.profile_steps)
    if not steps:
        return
    if len(steps) != 2 or steps[0] > steps[1]:
        yield (
            _PATH,
            f"got {steps}, allowed: the first and the last step, such as [101, 120], or []",
        )
    if config.runtime.traits.is_asynchronous:
        yield (
            _PATH,
            "the chief writes the trace, but other processes run the steps"
            "\nallowed: [] under `parameter_server`",
        )
