"""`runner launch`: starts a whole cluster on this machine."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from orbit_runner.cli.flags.config_flags import Parser, parse, parser
from orbit_runner.cli.launch_plan import make_plan
from orbit_runner.cli.launch_start import launch
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

On several machines, Slurm, Kubernetes and Vertex AI start the members: see `runner manifest`.

exit codes: 0 done, 2 usage or config, 138 a member was lost once too often, 130 and 143 asked to
leave, 128 + n killed by signal n, else that of the member that failed first"""

# Upper limits: numbers of processes and restarts, and seconds.
_MOST = {
    "workers": 1024,
    "ps": 1024,
    "data_workers": 1024,
    "max_restarts": 10**6,
    "grace": 10**6,
}


def main(arguments: Sequence[str]) -> int:
    """Starts a cluster on this machine and waits for its end. Returns the exit code."""
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
    return to


def _check(flags: argparse.Namespace) -> None:
    for name, most in _MOST.items():
        value = getattr(flags, name)
        if value is not None and not 0 <= value <= most:  # also rejects NaN
            raise RunnerError(f"--{name}: got {value}, allowed: 0 to {most}")
