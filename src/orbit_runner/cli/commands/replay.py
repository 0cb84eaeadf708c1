"""`runner replay`: repeats one step of a run, and examines it."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbit_runner import exit_codes
from orbit_runner.cli.command import Command, Parser
from orbit_runner.cli.flags.config_flags import (
    add_import_flag,
    add_progress_flags,
    messages_scope,
    parse_step,
    progress_of,
)
from orbit_runner.cli.flags.values import OUTPUT_FILE, RUN, write_flag_output
from orbit_runner.errors import RunnerError
from orbit_runner.jobs.reference_run import MACHINE_SETTINGS
from orbit_runner.jobs.replay import Replay, ReplayPlan, plan_replay, replay
from orbit_runner.run_directory.remote_runs import local_run_scope
from orbit_runner.step.results import Examination

if TYPE_CHECKING:
    from orbit_runner.train.run import Run

_DESCRIPTION = """\
Repeat one step of a run, from the nearest checkpoint before it, and show what happens in it:
the loss of each example, the norms of gradients and updates, and the first value that is NaN or
infinite, with its layer, its op and the examples that have it. The run itself is not changed, and
may still be in progress.

Step N is the step after which `global_step` is N, as in the records of a run. The output says
whether the replayed step is the one that the run took: the replay continues to the next checkpoint
or record of the run, and compares. The exit code is 4 if they differ, and otherwise 0.

--SECTION.NAME=VALUE changes settings of the machine: threads, XLA, and data directories."""
_SETTINGS_RULE = "the saved config determines the step; only settings of the machine can be changed"


def main(flags: argparse.Namespace) -> int:
    """Replays a step and prints what happens in it. Returns 4 if it differs from the run's."""
    if flags.out and not flags.layer:
        raise RunnerError(
            "has no effect without --layer; name the layers to save", path="--out", code="no-effect"
        )

    def debug(run: Run, examination: Examination) -> None:
        if flags.pdb:
            _debug(flags, run, examination)

    with messages_scope(flags), local_run_scope(flags.run, "RUN") as run:
        plan = plan_replay(
            run,
            flags.step,
            verify=flags.verify,
            imports=tuple(flags.imports or ()),
            changes=tuple(flags.overrides),
        )
        with _directory_scope() as directory:
            progress = progress_of(flags, f"replay of step {plan.step}", flags.run)
            result = replay(plan, directory, progress, layers=flags.layer, on_examined=debug)
    if flags.out:
        _save_arrays(flags.out, result.examination.arrays)
    if flags.json:
        _print_json(flags, plan, result)
    else:
        _print_replay(flags, plan, result)
    return exit_codes.DIFFERENT if result.own.verdict == "differs" else 0


def _add_flags(parser: Parser) -> None:
    parser.settings = MACHINE_SETTINGS
    parser.settings_rule = _SETTINGS_RULE
    parser.add_argument("run", type=RUN, help="run directory")
    parser.add_argument("--step", type=parse_step, required=True, metavar="N", help="the step")
    parser.add_argument(
        "--layer",
        action="append",
        default=[],
        metavar="NAME",
        help="show the output of this layer, such as encoder/dense; may be repeated",
    )
    parser.add_argument(
        "--out",
        type=OUTPUT_FILE,
        help="save the outputs and gradients of the layers as an .npz file",
    )
    parser.add_argument(
        "--all", action="store_true", help="print all examples, variables and layers"
    )
    parser.add_argument(
        "--pdb",
        action="store_true",
        help="then run the step in Python's debugger, from the first line of task.train_step",
    )
    verify = parser.add_mutually_exclusive_group()
    verify.add_argument(
        "--verify",
        action="store_true",
        default=None,
        help="continue to the next checkpoint or record of the run, and compare; by default if it "
        "is at most 300 steps after the step",
    )
    verify.add_argument(
        "--no_verify",
        action="store_const",
        const=False,
        dest="verify",
        help="end the replay with the examined step",
    )
    add_import_flag(parser)
    add_progress_flags(parser)
    parser.add_argument("--json", action="store_true", help="print JSON with all values")


@contextlib.contextmanager
def _directory_scope() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="replay-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _debug(flags: argparse.Namespace, run: Run, examination: Examination) -> None:
    from orbit_runner.step.examine import debug_step

    _print_examination(flags, examination)
    debug_step(run)


def _save_arrays(path: str, arrays: Mapping[str, Any]) -> None:
    import numpy as np

    content = io.BytesIO()
    np.savez(content, **arrays)
    write_flag_output("--out", path, content.getvalue())


def _print_examination(flags: argparse.Namespace, examination: Examination) -> None:
    from orbit_runner.reporting.examples import examination_sections
    from orbit_runner.reporting.terminal import section_lines

    sections = examination_sections(examination, layers=flags.layer, every=flags.all)
    print("\n".join(section_lines(sections)))


def _print_replay(flags: argparse.Namespace, plan: ReplayPlan, result: Replay) -> None:
    begin = "the beginning" if plan.start is None else f"the checkpoint of step {plan.start}"
    print(f"step {plan.step:,} of {flags.run}, replayed from {begin}")
    print(f"  {result.own}")
    if not flags.pdb:
        _print_examination(flags, result.examination)
    excluded = _exclude_advice(flags.run, plan, result.examination)
    if excluded:
        print(f"\n{excluded}")


def _exclude_advice(run: str, plan: ReplayPlan, examination: Examination) -> str:
    """Returns how to train without the examples that are to blame; "" if they are not known."""
    ids = [culprit.about.get("example") for culprit in examination.culprits]
    known = [example for example in ids if example is not None]
    is_some = 0 < len(known) == len(ids) < examination.rows
    if not is_some or not plan.resolved.config.data.excludes_examples:
        return ""
    data = plan.resolved.config.task.train_data
    earlier = data.exclude if isinstance(data.exclude, list | tuple) else ()
    chosen = ", ".join(map(str, [*earlier, *known]))
    directory = shlex.quote(f"{run.rstrip('/')}-without")
    return (
        "to train without them from the last checkpoint before they were first used:\n"
        f"  runner branch {shlex.quote(run)} --model_dir={directory} "
        f"--task.train_data.exclude='[{chosen}]'"
    )


def _print_json(flags: argparse.Namespace, plan: ReplayPlan, result: Replay) -> None:
    values = {
        "run": flags.run,
        "start": plan.start,
        "notes": plan.notes,
        "own": dataclasses.asdict(result.own),
        **result.examination.as_dict(),
    }
    print(json.dumps(values, indent=1, allow_nan=False))


COMMAND = Command("replay", _DESCRIPTION, _add_flags, ["runs/a --step=100"], main)
