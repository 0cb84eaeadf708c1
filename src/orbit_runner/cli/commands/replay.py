"""`runner replay`: repeats one step of a run, and examines it."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner import exit_codes
from orbit_runner.cli.command import Command, emit
from orbit_runner.cli.flags.config_flags import (
    IMPORT,
    PROGRESS_FLAGS,
    library_output_scope,
    parse_step,
    progress_of,
)
from orbit_runner.cli.flags.rows import Group, flag, switch
from orbit_runner.cli.flags.values import RUN_DIRECTORY
from orbit_runner.repeat.plan import MACHINE_SETTINGS
from orbit_runner.repeat.replay import Replay, ReplayPlan, plan_replay, replay
from orbit_runner.step.results import Examination

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

_DESCRIPTION = """\
Repeat one step of a run, from the nearest checkpoint before it, and show what happens in it:
the loss of each example, the norms of gradients and updates, and the first value that is NaN or
infinite, with its layer, its op and the examples that have it. The run itself is not changed, and
may still be in progress.

Step N is the step after which `global_step` is N, as in the records of a run. The output says
whether the replayed step is the one that the run took: the replay continues to the next checkpoint
or record of the run if that is near, and compares. The exit code is 4 if they differ, otherwise 0.

--find finds the step at which the run diverged, by training again from the checkpoint before it,
and examines that step: the first step after which a loss, a weight or an optimizer slot is NaN or
infinite, or the first one with a loss above trainer.loss_upper_bound.

--SECTION.NAME=VALUE changes settings of the machine: threads, XLA, and data directories."""


def main(flags: argparse.Namespace) -> int:
    """Replays a step and prints what happens in it. Returns 4 if it differs from the run's."""
    run = Path(flags.run)
    imports, changes = tuple(flags.imports or ()), tuple(flags.overrides)
    plan = plan_replay(run, flags.step, imports, changes)
    with tempfile.TemporaryDirectory(prefix="replay-", ignore_cleanup_errors=True) as temporary:
        title = "search up to" if flags.find else "replay of"
        progress = progress_of(flags, f"{title} step {plan.step}", flags.run)
        with library_output_scope(flags):
            result = replay(plan, Path(temporary), progress)
    is_other = result.own is not None and result.own.verdict == "differs"
    code = exit_codes.DIFFERENT if is_other else 0
    return emit(flags, _as_dict(flags, plan, result), _lines(flags, plan, result), code)


def _lines(flags: argparse.Namespace, plan: ReplayPlan, result: Replay) -> Iterator[str]:
    from orbit_runner.reporting.examples import examination_sections
    from orbit_runner.reporting.terminal import section_lines

    how = "replayed" if result.own else "the first that diverges, found"
    yield f"step {result.step:,} of {flags.run}, {how} from {plan.steps.beginning}"
    yield f"  {result.own or result.finding}"
    if result.examination is None:
        yield f"  its layers cannot be examined: {result.obstacle}"
        if result.examples:
            yield f"examples of the step: {', '.join(map(str, result.examples))}"
        return
    yield from section_lines(examination_sections(result.examination, every=flags.all))
    excluded = _exclude_advice(flags.run, plan, result.examination)
    if excluded:
        yield f"\n{excluded}"


def _exclude_advice(run: str, plan: ReplayPlan, examination: Examination) -> str:
    """Returns how to train without the examples that are to blame; "" if they are not known."""
    ids = [culprit.about.get("example") for culprit in examination.culprits]
    known = [example for example in ids if example is not None]
    is_some = 0 < len(known) == len(ids) < examination.rows
    if not is_some or not plan.steps.config.config.data.excludes_examples:
        return ""
    data = plan.steps.config.config.task.train_data
    chosen = ", ".join(map(str, [*data.exclude, *known]))
    directory = shlex.quote(f"{run.rstrip('/')}-without")
    return (
        "to train without them from the last checkpoint before they were first used:\n"
        f"  runner branch {shlex.quote(run)} --model_dir={directory} "
        f"--task.train_data.exclude='[{chosen}]'"
    )


def _as_dict(flags: argparse.Namespace, plan: ReplayPlan, result: Replay) -> JsonObject:
    values = {
        "run": flags.run,
        "start": plan.steps.start,
        "notes": plan.steps.reasons,
        "step": result.step,
    }
    if result.own is not None:
        values["own"] = dataclasses.asdict(result.own)
    else:
        values["finding"] = result.finding
    if result.examination is not None:
        values |= result.examination.as_dict()
    else:
        examples = [{"example": example} for example in result.examples]
        values |= {"obstacle": result.obstacle, "examples": examples}
    return values


_FLAGS = (
    RUN_DIRECTORY,
    Group(
        [
            flag("--step=N", "the step", type=parse_step),
            switch("--find", "find the step at which the run diverged"),
        ],
        required=True,
    ),
    switch("--all", "print all examples and variables"),
    IMPORT,
    *PROGRESS_FLAGS,
    switch("--json", "print JSON with all values"),
)
COMMAND = Command(
    "replay",
    _DESCRIPTION,
    _FLAGS,
    ["runs/a --step=100", "runs/a --find"],
    main,
    settings=MACHINE_SETTINGS,
    settings_rule="the saved config determines the step; only settings of the machine can be "
    "changed",
)
