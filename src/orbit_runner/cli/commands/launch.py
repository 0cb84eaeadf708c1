"""`runner launch`: a whole cluster on this machine, or this machine's part of one."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from orbit_runner.cli.flags.config_flags import Parser, parse, parser
from orbit_runner.cli.launch_plan import make_plan
from orbit_runner.cli.launch_start import launch
from orbit_runner.distribute.cluster.addresses import address_problem
from orbit_runner.errors import RunnerError
from orbit_runner.launch.log_multiplexer import Screen

_DESCRIPTION = """\
Start the members of a cluster on this machine, and see to it that they reach the end.

  runner launch --workers=2 -- --experiment=digits \\
         --distribution_strategy=multi_worker_mirrored --model_dir=runs/a

The flags after `--` are those of `runner run`, the same for all members. What they say is shown
with their names before it, on stderr, and kept in MODEL_DIR/logs; the results come to stdout as
from `runner run`. A member that is lost is replaced, and training goes on from the last checkpoint;
one that fails ends all. Ctrl-C saves and leaves, a second one leaves at once.

On several machines, start the same command on each with its own --node_rank; the numbers of
members are then those of each machine.

exit codes: 0 done, 2 usage or config, 138 a member was lost once too often, 130 and 143 asked to
leave, 128 + n killed by signal n, else that of the member that failed first"""

# Processes of one machine, and seconds.
_MOST = {
    "workers": 1024,
    "ps": 1024,
    "data_workers": 1024,
    "max_restarts": 10**6,
    "grace": 10**6,
    "rendezvous_timeout": 10**6,
}


def main(arguments: Sequence[str]) -> int:
    """Launches a cluster.

    Args:
        arguments: The arguments after `launch`.

    Returns:
        The exit code.

    Raises:
        RunnerError: The cluster cannot be started as it is described.
    """
    own, theirs = _split_at_dashes(list(arguments))
    flags = parse(_parser(), own)
    _check(flags)
    if theirs is None:
        raise RunnerError("the flags of `runner run` come after `--`; see `runner launch --help`")
    color = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    screen = Screen(sys.stdout.buffer, sys.stderr.buffer, color=color)
    return launch(make_plan(flags, theirs), screen)


def _split_at_dashes(arguments: list[str]) -> tuple[list[str], list[str] | None]:
    if "--" not in arguments:
        return arguments, None
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _parser() -> Parser:
    to = parser("launch", _DESCRIPTION)
    to.settings_rule = "settings and the other flags of `runner run` come after `--`"
    to.usage = "runner launch [FLAGS] -- [FLAGS OF runner run]"
    add = to.add_argument
    add("--workers", type=int, metavar="N", help="those that train; default: runtime.num_workers")
    add("--ps", type=int, metavar="N", help="default: runtime.num_parameter_servers")
    add("--evaluator", action="store_true", help="evaluate checkpoints beside training")
    add("--data_workers", type=int, default=0, metavar="N", help="processes that make batches")
    add("--max_restarts", type=int, default=3, metavar="K", help="lost members to replace")
    add("--grace", type=float, metavar="SECONDS", help="to save and leave; runtime.grace_period")
    add("--logs", metavar="DIR", help="default: MODEL_DIR/logs")
    group = to.add_argument_group("several machines, one command on each")
    add = group.add_argument
    add("--nnodes", type=int, default=1, metavar="N", help="how many")
    add("--node_rank", type=int, default=0, metavar="R", help="which one this is, from 0")
    add("--rendezvous", metavar="HOST:PORT", help="of machine 0, which listens there")
    add(
        "--rendezvous_timeout",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="to wait for the other machines",
    )
    add("--host", default="", help="what others reach this machine by; found out where unset")
    return to


def _check(flags: argparse.Namespace) -> None:
    for name, most in _MOST.items():
        value = getattr(flags, name)
        if value is not None and not 0 <= value <= most:  # so that NaN is refused, too
            raise RunnerError(f"--{name}: got {value}, allowed: 0 to {most}")
    if not 1 <= flags.nnodes <= _MOST["workers"]:
        raise RunnerError(f"--nnodes: got {flags.nnodes}, allowed: 1 to {_MOST['workers']}")
    if not 0 <= flags.node_rank < flags.nnodes:
        allowed = f"0 to {flags.nnodes - 1} (--nnodes={flags.nnodes})"
        raise RunnerError(f"--node_rank: got {flags.node_rank}, allowed: {allowed}")
    if flags.nnodes > 1 and (problem := address_problem(flags.rendezvous)):
        raise RunnerError(f"--rendezvous: {problem}")
    if flags.nnodes == 1 and flags.rendezvous:
        raise RunnerError("--rendezvous: is for several machines, and --nnodes is 1")
