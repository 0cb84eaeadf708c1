"""Checks of `trainer.on_nonfinite` and `trainer.skip_steps`, alone and against the runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbit_runner.config.schema.experiment import ExperimentConfig


def nonfinite_problems(config: ExperimentConfig) -> Iterator[tuple[str, str]]:
    """Yields (dotted path, message) for settings that contradict each other or the strategy."""
    trainer = config.trainer
    action, trials = trainer.on_nonfinite, trainer.recovery_max_trials
    if action == "rollback" and trials <= 0:
        yield (
            "trainer.on_nonfinite",
            f"got 'rollback', but recovery_max_trials is {trials}\n"
            "set trainer.recovery_max_trials to the maximum number of rollbacks",
        )
    if action in ("stop", "skip") and trials > 0:
        yield (
            "trainer.on_nonfinite",
            f"got {action!r}, but recovery_max_trials is {trials}, which rolls back\n"
            "set only one of them; allowed with recovery_max_trials: null, 'rollback'",
        )
    if not config.runtime.traits.is_asynchronous:
        return
    if action == "skip":
        yield (
            "trainer.on_nonfinite",
            "got 'skip', but the workers of `parameter_server` do not train the same steps again\n"
            "allowed: null, 'stop', 'rollback'",
        )
    if trainer.skip_steps:
        yield (
            "trainer.skip_steps",
            "the workers of `parameter_server` do not wait for each other, so steps have no order\n"
            "allowed: [] under `parameter_server`",
        )
