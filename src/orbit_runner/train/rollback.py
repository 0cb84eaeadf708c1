"""Returns to the last checkpoint after training diverged."""

from __future__ import annotations

import contextlib

from orbit_runner.config.schema.data import same_order_reason
from orbit_runner.errors import Diverged, RunnerError
from orbit_runner.run_directory.metric_records import (
    RECOVERED,
    RESUMED,
    SKIPPED,
    read_recoveries,
    read_skipped_steps,
    recoveries_of,
)
from orbit_runner.train.run import Run
from orbit_runner.utils.log import note


def can_roll_back(run: Run) -> bool:
    """Returns whether trials are left after training diverged."""
    return int(run.state.recoveries.numpy()) < run.config.trainer.recovery_max_trials


def record_divergence(run: Run, error: Diverged) -> None:
    """Writes a divergence to `metrics.jsonl`, if records are written."""
    run.records.write_event({"event": "diverged", "reason": error.reason})


def record_resume(run: Run) -> None:
    """Writes recoveries and skipped steps to `metrics.jsonl` if the records have others.

    They do if the run was stopped before it saved a checkpoint after a recovery or a skipped step.
    """
    if not run.records.are_of_training or run.trainer is None:
        return
    skipped = run.trainer.skipped.found
    if read_skipped_steps(run.directory.metrics) != skipped:
        run.records.write_event({"event": RESUMED, SKIPPED: list(skipped)})
    parts = read_recoveries(run.directory.metrics)
    count = int(run.state.recoveries.numpy())
    if recoveries_of(parts, run.step + 1) != count:
        run.records.write_event({"event": RESUMED, "recoveries": count})


def roll_back(run: Run, reason: str) -> None:
    """Returns to the last checkpoint after training diverged.

    Raises RunnerError if no checkpoint can be restored.
    """
    with contextlib.suppress(Diverged):
        run.checkpoints.sync()  # The save in progress may be of diverged weights.
    assert run.trainer is not None
    trials = int(run.state.recoveries.numpy()) + 1
    if run.checkpoints.restore_latest() is None:
        raise RunnerError(
            f"training diverged: {reason}\n"
            f"no intact checkpoint is left in {run.checkpoints.directory} to return to",
            code="diverged",
        )
    run.state.recoveries.assign(trials)
    run.trainer.rewind()
    run.restore_callbacks()
    run.records.write_event({"event": RECOVERED, "recoveries": trials})
    same = same_order_reason(run.section("train_data"))
    order = f"the same order of examples, because {same}" if same else "another order of examples"
    count = f"recovery {trials} of {run.config.trainer.recovery_max_trials}"
    note(
        f"training diverged: {reason}\n"
        f"  returned to step {run.step} ({count}), continuing with {order}"
    )
