"""Lists the reasons why the same config may not give the same weights again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orbit_runner.determinism.numerics_record import describe_changes
from orbit_runner.distribute.process_group import is_asynchronous
from orbit_runner.model_garden.task_adapter import has_services
from orbit_runner.run_directory.config import is_made_with
from orbit_runner.run_directory.data_record import inexact_data

if TYPE_CHECKING:
    from orbit_runner.train.callbacks.base import RunView


def inexact_reasons(run: RunView) -> list[str]:
    """Returns why the same config may not give the same weights again; [] if it does."""
    reasons = _inexact_steps(run)
    trials = int(run.state.recoveries.numpy())
    if trials:
        reasons.append(
            f"recoveries from divergence: {trials}; a resumed run may diverge at another step"
        )
    reasons += [
        *run.checkpoints.conditions.inexact,
        *run.checkpoints.conditions.code.reasons(),
        *run.adapter.inexact_reasons(),
        *(
            callback.inexact_reason
            for callback in run.callbacks.callbacks
            if callback.inexact_reason
        ),
    ]
    return [*reasons, *inexact_data(run.model_dir), *_inexact_inputs(run)]


def retraining_reasons(run: RunView) -> list[str]:
    """Returns why steps may differ if this process trains them again; [] if they do not."""
    reasons = [*_inexact_steps(run), *run.adapter.inexact_reasons(), *_inexact_inputs(run)]
    if getattr(run.config.for_task.task, "pruning", None):
        reasons.append("a callback prunes the weights between loops")
    return reasons


def _inexact_steps(run: RunView) -> list[str]:
    reasons = []
    if not run.config.runtime.deterministic:
        reasons.append("runtime.deterministic is false")
    unkeyed = run.trainer.unkeyed if run.trainer is not None else []
    if unkeyed:
        reasons.append(
            f"a resumed run draws different random numbers in {len(unkeyed)} ops, such as "
            f"{unkeyed[0]}"
        )
    if is_asynchronous(run.strategy):
        reasons.append("the order of updates by asynchronous workers is not deterministic")
    return reasons


def _inexact_inputs(run: RunView) -> Iterator[str]:
    if run.adapter.starts_at_step:
        return
    if is_asynchronous(run.strategy) or not run.config.trainer.replay_inputs:
        yield "the task's input pipeline starts over when a run is resumed"
    if has_services(run.config):
        yield "the order of batches from tf.data services is not deterministic"


def resume_reasons(run: RunView) -> list[str]:
    """Returns why the config alone does not reproduce a resumed run; [] if it does."""
    record = run.checkpoints.restored
    now = run.checkpoints.conditions
    if record is None:
        changed = ["from a checkpoint without a record, such as one of Model Garden"]
    else:
        same = is_made_with(run.model_dir, record.config, run.written_config)
        changed = [] if same else ["with another config"]
        # With logical replicas, the weights do not depend on the strategy.
        if record.strategy != now.strategy and not run.config.runtime.logical_replicas:
            changed.append(f"under another strategy ({record.strategy} → {now.strategy})")
        if describe_changes(record.numerics, now.numerics):
            changed.append("on another machine or installation")
    reasons = [] if record is None else list(record.inexact)
    if changed and run.step > 0:
        reasons.append(f"it was resumed at step {run.step} {', '.join(changed)}")
    return reasons
