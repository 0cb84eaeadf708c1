"""`runner launch`: starts a whole cluster on this machine."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence

from orbit_runner import exit_codes
from orbit_runner.cli.command import Command, Parser, parse_flags
from orbit_runner.cli.commands.run import COMMAND as RUN_COMMAND
from orbit_runner.cli.commands.run import choose_model_dir, flags_of_run
from orbit_runner.cli.flags.config_flags import build_request
from orbit_runner.cli.flags.rows import flag, switch
from orbit_runner.cli.flags.values import MODEL_DIR, Count
from orbit_runner.config.resolve import resolve
from orbit_runner.errors import RunnerError
from orbit_runner.jobs.launch import LaunchPlan, count_members, launch
from orbit_runner.launch.supervisor import Limits, Output
from orbit_runner.storage.paths import SHARED
from orbit_runner.utils.streams import print_message

_DESCRIPTION = """\
Start the members of a cluster on this machine, and restart them if one is lost.

  runner launch --workers=2 -- --experiment=digits \\
         --distribution_strategy=multi_worker_mirrored --model_dir=runs/a

The flags after `--` are those of `runner run`, the same for all members. The output of the members
is written to stderr, prefixed with their names; the results are written to stdout, as by `runner
run`. If a member is lost, all are restarted, up to --restarts times, and training resumes from the
last checkpoint; if a member fails, all are stopped. Ctrl-C saves a checkpoint and exits; a second
Ctrl-C exits at once.

To run on several machines, use Slurm, Kubernetes or Vertex AI: see the files in configs/clusters/.

exit codes: 0: success; 2: wrong usage or config; 138: more members were lost than --restarts
allows; 130 and 143: stopped by SIGINT or SIGTERM; 128 + n: a member was killed by signal n;
otherwise the exit code of the first member that failed"""

_MEMBERS = Count(0, 1024)


def main(flags: argparse.Namespace) -> int:
    """Starts a cluster on this machine and waits for its end. Returns the exit code."""
    if flags.run_arguments is None:
        raise RunnerError(
            "the flags of `runner run` come after `--`; see `runner launch --help`",
            code="wrong-usage",
        )
    plan = make_plan(flags)
    code = launch(plan, Output(sys.stdout.buffer, sys.stderr.buffer))
    if code:
        _print_continuation(plan, flags.run_arguments, code)
    return code


def make_plan(flags: argparse.Namespace) -> LaunchPlan:
    """Returns the plan, with the config that the members will resolve.

    `flags.run_arguments` are the arguments of `runner run`. Raises `RunnerError` if the config does
    not resolve or does not describe a cluster.
    """
    run_rows = flags_of_run(dataclasses.replace(MODEL_DIR, use=SHARED))
    run_parser = dataclasses.replace(RUN_COMMAND, flags=run_rows).parser()
    run_flags = parse_flags(run_parser, flags.run_arguments)
    resolved = resolve(build_request(run_flags))
    model_dir = choose_model_dir(run_flags, resolved)
    run_arguments = list(flags.run_arguments)
    if not run_flags.model_dir:
        # The default depends on the time, but all members must use the same directory.
        run_arguments.append(f"--model_dir={model_dir}")
    runtime = resolved.config.runtime
    return LaunchPlan(
        resolved=resolved,
        mode=run_flags.mode,
        resume=run_flags.resume,
        run_arguments=run_arguments,
        counts=count_members(runtime, flags.workers, flags.ps, evaluator=flags.evaluator),
        model_dir=model_dir,
        limits=Limits(restarts=flags.restarts, grace=runtime.grace_period),
    )


def _print_continuation(plan: LaunchPlan, run_arguments: Sequence[str], code: int) -> None:
    """Prints the command that continues after a signal or divergence."""
    from orbit_runner.cli.continuation import format_continuation
    from orbit_runner.jobs.train_job import CONTINUED_CODES
    from orbit_runner.run_directory.run_reader import RunReader

    is_diverged = RunReader(plan.model_dir).status == "diverged"
    if code not in CONTINUED_CODES or (code == exit_codes.DIVERGED and not is_diverged):
        return  # A complete run may end with the same code.
    # The plan adds the run directory, unless it was given.
    command = ["runner", *sys.argv[1:], *plan.run_arguments[len(run_arguments) :]]
    if code == exit_codes.DIVERGED:
        command.append("--resume=override")
    print_message(format_continuation(str(plan.model_dir), command))


def _parse(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    at = list(arguments).index("--") if "--" in arguments else None
    flags = parse_flags(parser, arguments[:at])
    flags.run_arguments = None if at is None else arguments[at + 1 :]
    return flags


_FLAGS = (
    flag("--workers=N", "number of workers (default: runtime.num_workers)", type=_MEMBERS),
    flag(
        "--ps=N",
        "number of parameter servers (default: runtime.num_parameter_servers)",
        type=_MEMBERS,
    ),
    switch("--evaluator", "evaluate checkpoints in a separate process"),
    flag(
        "--restarts=N",
        "how often all members are restarted after one is lost",
        type=Count(0, 10**6),
        default=3,
    ),
)
COMMAND = Command(
    "launch",
    _DESCRIPTION,
    _FLAGS,
    ["--workers=2 -- --experiment=digits --config_file=configs/runtime/multi_worker.yaml"],
    main,
    parse=_parse,
    settings_rule="settings and the other flags of `runner run` come after `--`",
    usage="runner launch [FLAGS] -- [FLAGS OF runner run]",
    after_dashes="run",
)
