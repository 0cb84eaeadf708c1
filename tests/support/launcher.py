"""The library part of `runner launch` as a process, with members that a test defines."""

import json
import sys
from pathlib import Path

from orbit_runner.errors import RunnerError
from orbit_runner.jobs.launch import make_clusters, member_spec
from orbit_runner.launch.supervisor import Limits, Output, supervise
from orbit_runner.utils.signals import SignalGuard

MEMBER = str(Path(__file__).with_name("member.py"))


def main() -> int:
    settings = json.loads(sys.argv[1])
    folder, strategy = Path(settings["folder"]), settings["strategy"]

    def make_specs():
        command = (sys.executable, "-S", MEMBER, str(folder))
        return [
            member_spec((*command, str(cluster.me)), cluster, number, strategy)
            for number, cluster in enumerate(make_clusters(settings["counts"]))
        ]

    signals = SignalGuard()
    with signals.installed_scope():
        output = Output(sys.stdout.buffer, sys.stderr.buffer)
        return supervise(make_specs, output, signals, Limits(**settings["limits"]))


try:
    sys.exit(main())
except RunnerError as error:
    print(f"runner: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
