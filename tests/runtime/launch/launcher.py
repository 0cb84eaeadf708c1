"""The library part of `runner launch` as a process, with members that a test makes up."""

import json
import sys
from pathlib import Path

from orbit_runner.errors import RunnerError
from orbit_runner.launch.data_service import service_specs
from orbit_runner.launch.gathering import OneMachine
from orbit_runner.launch.job import Job, Limits
from orbit_runner.launch.log_multiplexer import Screen
from orbit_runner.launch.members import Members
from orbit_runner.launch.rendezvous import Rendezvous
from orbit_runner.launch.signals import Signals
from orbit_runner.launch.supervisor import supervise

MEMBER = str(Path(__file__).with_name("member.py"))


def main() -> int:
    told = json.loads(sys.argv[1])
    folder, screen = Path(told["folder"]), Screen(sys.stdout.buffer, sys.stderr.buffer)
    command = [sys.executable, "-S", MEMBER, str(folder)]

    def logs(gathered):
        return folder / "logs" / f"attempt-{gathered.attempt}"

    def command_of(cluster, gathered):
        return [*command, str(cluster.me), *gathered.services]

    def server(flags):
        return [*command, "data", *(flag.partition("=")[2] for flag in flags)]

    members = Members(strategy=told["strategy"], command=command_of, logs=logs)
    signals = Signals()
    with signals.installed_scope():
        if "rendezvous" in told:
            gathering = Rendezvous(
                **told["rendezvous"], counts=told["counts"], shared={}, screen=screen
            )
        else:
            gathering = OneMachine(told["counts"], {})
        job = Job(gathering, screen, signals, Limits(**told["limits"]))

        def specs(gathered):
            return [
                *service_specs(gathered, logs(gathered), server),
                *members.specs(gathered),
            ]

        return supervise(job, specs)


try:
    sys.exit(main())
except RunnerError as error:
    print(f"runner: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
