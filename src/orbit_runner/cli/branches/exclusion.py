"""The step at which a branch that leaves examples out can begin. Does not import TensorFlow."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from orbit_runner.checkpoint.latest_checkpoint import checkpoints_of, latest_intact_record
from orbit_runner.cli.preflight import setting_error_scope
from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.errors import RunnerError
from orbit_runner.step.examples import TrainingOrder

EXCLUDE_SETTING = "task.train_data.exclude"


def newly_excluded_examples(before: ResolvedConfig, resolved: ResolvedConfig) -> set[int]:
    """Returns the indices of the examples that only `resolved` leaves out of training.

    Returns an empty set if `before` excludes examples that `resolved` includes: then the runs have
    no step in common.
    """
    old, new = (_excluded_examples(one) for one in (before, resolved))
    return set() if old - new else new - old


def _excluded_examples(resolved: ResolvedConfig) -> set[int]:
    with setting_error_scope(resolved):
        return set(TrainingOrder(resolved.config, None).excluded_examples().tolist())


def find_first_use(order: TrainingOrder, examples: Collection[int], until: int) -> int | None:
    """Returns the first step, up to `until`, with one of several examples; None if there is none.

    `examples` are indices, as `runner batch` prints them.
    """
    found = (order.occurrences(example, until) for example in examples)
    return min((one[0]["step"] for one in found if one), default=None)


def find_branch_step(
    before: ResolvedConfig, run: Path, examples: Collection[int], until: int
) -> tuple[int, int | None]:
    """Returns the last checkpoint of a run before some examples, and the first step with them.

    `before` is the config of the run, and `until` the last step that it has reached. Until that
    checkpoint, a run from scratch without these examples has the same weights. The first step is
    None if none of them was trained on. Raises `RunnerError` if there is no such checkpoint.
    """
    with setting_error_scope(before):
        first = find_first_use(TrainingOrder(before.config, run), examples, until)
    record = latest_intact_record(
        checkpoints_of(run), at_most=until if first is None else first - 1
    )
    if record is None:
        when = f"before step {first}, the first with an excluded example" if first else "yet"
        raise RunnerError(
            f"--at: is not set, and {run} has no intact checkpoint {when}\n"
            "start a new run with this setting, or specify the step"
        )
    return record.step, first
