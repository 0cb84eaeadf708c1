"""Decides from which checkpoint a step is replayed, and how far. Does not import TensorFlow."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from orbit_runner.checkpoint.latest_checkpoint import checkpoints_of, latest_intact_record
from orbit_runner.checkpoint.metadata import CheckpointRecord
from orbit_runner.cli.reference_run import resolve_saved_config
from orbit_runner.cli.single_process import convert_to_single_process
from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.determinism.numerics_record import describe_changes as numeric_changes
from orbit_runner.determinism.numerics_record import describe_numerics
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.code_version import code_differences, read_code_version
from orbit_runner.run_directory.config import is_made_with
from orbit_runner.run_directory.data_record import inexact_data
from orbit_runner.run_directory.history import RunHistory, read_history

# A replay continues by at most this number of steps, unless more are requested.
_MOST_STEPS = 300


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplayPlan:
    """How a step is replayed."""

    resolved: ResolvedConfig  # config of the run, changed to fit a single process
    history: RunHistory
    step: int
    start: int | None  # step of the checkpoint to start from; None for the beginning
    last: int  # the last step of the replay, or `step` if it ends before that step is taken
    continues: bool  # whether the replay takes the step as the run did, and all up to `last`
    notes: list[str]  # why the step may differ from that of the run

    @property
    def after(self) -> int:
        """The step after which steps are repeated; -1 for the beginning."""
        return -1 if self.start is None else self.start

    def limit_steps(self, step: int) -> ResolvedConfig:
        """Returns the config of a run that ends at a step."""
        trainer = self.resolved.config.trainer.replace(train_steps=step, train_epochs=0.0)
        return dataclasses.replace(
            self.resolved, config=self.resolved.config.replace(trainer=trainer)
        )


def plan_replay(
    run: Path,
    step: int,
    *,
    verify: bool | None = None,
    imports: tuple[str, ...] = (),
    changes: tuple[tuple[str, str, str], ...] = (),
) -> ReplayPlan:
    """Returns how a step of a run is replayed.

    `verify` decides whether the replay continues to the next checkpoint or record of the run; None:
    if that is near. `changes` are (flag, dotted path, text) of machine settings. Raises
    `RunnerError` if the run has no config, or if a single process cannot repeat it.
    """
    written, changed = resolve_saved_config(run, imports, changes)
    train_steps = written.config.trainer.train_steps
    if train_steps and step > train_steps:
        raise RunnerError(
            f"--step: got {step}, allowed: 1 to {train_steps}, the last step of the run "
            "(trainer.train_steps)"
        )
    _require_observable(written)
    checkpoints, history = checkpoints_of(run), read_history(run)
    start = latest_intact_record(checkpoints, at_most=step - 1)
    newest = latest_intact_record(checkpoints)
    strategy = newest.strategy if newest is not None else _recorded_strategy(history)
    last = _next_recorded_step(history, step, verify, train_steps, written)
    return ReplayPlan(
        resolved=convert_to_single_process(changed, strategy),
        history=history,
        step=step,
        start=None if start is None else start.step,
        last=last or step,
        continues=last is not None,
        notes=_find_notes(run, written, changed, newest, history),
    )


def _require_observable(resolved: ResolvedConfig) -> None:
    runtime = resolved.config.runtime
    if runtime.traits.uses_tpu:
        raise RunnerError(
            "RUN: was trained on TPUs, whose ops cannot be observed one by one\n"
            "use `runner batch` to see the examples of the step"
        )


def _recorded_strategy(history: RunHistory) -> str:
    """Returns the strategy of a run without checkpoints, as in their records."""
    replicas = history.attempts[-1].get("replicas") if history.attempts else None
    return f"× {replicas}" if replicas else ""


def _next_recorded_step(
    history: RunHistory, step: int, verify: bool | None, train_steps: int, resolved: ResolvedConfig
) -> int | None:
    """Returns the step up to which the replay can be compared; None if it need not continue."""
    if verify is False:
        return None
    saved = min((one for one in history.fingerprints if one >= step), default=None)
    logged = min((one for one in history.losses if one >= step), default=None)
    for found in (saved, logged):
        if found is not None and (verify or found - step <= _MOST_STEPS):
            return found
    stopped = history.attempts and history.attempts[-1].get("outcome") not in ("", None, "done")
    if saved is not None or logged is not None or not stopped:
        return None
    # The run failed; the replay should fail in the same way by the end of the record.
    interval = resolved.config.trainer.summary_interval
    end = -(-step // interval) * interval
    end = min(end, train_steps) if train_steps else end
    return end if verify or end - step <= _MOST_STEPS else None


def _find_notes(
    run: Path,
    written: ResolvedConfig,
    changed: ResolvedConfig,
    newest: CheckpointRecord | None,
    history: RunHistory,
) -> list[str]:
    found = []
    if history.is_overridden:
        found.append("the run was resumed with --resume=override or --allow_partial")
    if not changed.config.runtime.deterministic:
        found.append("runtime.deterministic is false: bitwise-identical results are not guaranteed")
    found += inexact_data(run)
    if newest is None:
        return found
    if not is_made_with(run, newest.config, written.config):
        found.append("the newest checkpoint was made with a different config than config.yaml")
    found += code_differences(history.attempts, newest.step, read_code_version(run))
    return found + numeric_changes(newest.numerics, describe_numerics(changed.config.runtime))
