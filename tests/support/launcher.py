"""The library part of `runner launch` as a process, with members that a test defines."""

import json
import sys
from pathlib import Path

from orbit_runner.errors import RunnerError
from orbit_runner.launch.members import Members
from orbit_runner.launch.process import LogMultiplexer
from orbit_runner.launch.supervisor import Elastic, Job, Limits, supervise
from orbit_runner.utils.signals import Signals

MEMBER = str(Path(__file__).with_name("member.py"))


def main() -> int:
    told = json.loads(sys.argv[1])
    folder, output = Path(told["folder"]), LogMultiplexer(sys.stdout.buffer, sys.stderr.buffer)
    command = [sys.executable, "-S", MEMBER, str(folder)]

    def logs(attempt):
        return folder / "logs" / f"attempt-{attempt.number}"

    def command_of(cluster, attempt):
        return [*command, str(cluster.me)]

    members = Members(strategy=told["strategy"], command=command_of, logs=logs,
                      stall_timeout=told["stall_timeout"])  # fmt: skip
    signals = Signals()
    with signals.handler_scope():
        limits = Limits(**told["limits"])
        sizes = told["elastic"]
        elastic = Elastic(sizes, limits.restarts, told["rejoin_after"]) if sizes else None
        job = Job(output, signals, limits, elastic)
        return supervise(job, told["counts"], members.specs)


try:
    sys.exit(main())
except RunnerError as error:
    print(f"runner: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
