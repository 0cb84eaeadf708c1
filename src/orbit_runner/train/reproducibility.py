"""Lists the reasons why the same config may not give the same weights again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orbit_runner.determinism.numerics_record import changes
from orbit_runner.distribute.parameter_server import is_asynchronous
from orbit_runner.model_garden.task_adapter.data_sections import has_services
from orbit_runner.run_directory.config import is_made_with
from orbit_runner.run_directory.data_record import inexact_data

if TYPE_CHECKING:
    from orbit_runner.train.run import Run


def inexact_reasons(run: Run) -> list[str]:
    """Returns why the same config may not give the same weights again; [] if it does."""
    reasons = []
    if not run.config.runtime.deterministic:
        reasons.append("runtime.deterministic is false")
    unkeyed = run.trainer.unkeyed if run.trainer is not None else []
    if unkeyed:
        reasons.append(f"a resumed run draws otherwise at {len(unkeyed)} ops: {unkeyed[0]}")
    trials = int(run.state.recoveries.numpy())
    if trials:
        reasons.append(
            f"it went back {trials} times after diverging; a resumed run may see that elsewhere"
        )
    if is_asynchronous(run.strategy):
        reasons.append("updates of asynchronous workers come in no certain order")
    reasons += run.circumstances.inexact
    return [*reasons, *inexact_data(run.model_dir), *_inexact_inputs(run)]


def _inexact_inputs(run: Run) -> Iterator[str]:
    if run.adapter.starts_at_step:
        return
    if is_asynchronous(run.strategy) or not run.config.trainer.replay_inputs:
        yield "the task's input pipeline begins anew when a run is resumed"
    if has_services(run.config):
        yield "tf.data services hand out the task's batches in no certain order"


def resume_reasons(run: Run) -> list[str]:
    """Returns why the config alone does not reproduce a resumed run; [] if it does."""
    record, now = run.checkpoints.restored, run.circumstances
    if record is None:
        changed = ["from a checkpoint without a record, such as Model Garden's"]
    else:
        same = is_made_with(run.model_dir, record.config, run.written_config)
        changed = [] if same else ["with another config"]
        if record.strategy != now.strategy:
            changed.append(f"under another strategy ({record.strategy} → {now.strategy})")
        if changes(record.numerics, now.numerics):
            changed.append("on another machine or installation")
    if run.checkpoints.restored_partly:
        changed.append("with a part of its checkpoint")
    found = [] if record is None else list(record.inexact)
    if changed and run.step > 0:
        found.append(f"it was resumed at step {run.step} {', '.join(changed)}")
    return found
