"""`runner init`: writes a project with a task of the user's own."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

from orbit_runner.cli.command import Command, Parser
from orbit_runner.cli.flags.values import DIRECTORY
from orbit_runner.errors import RunnerError
from orbit_runner.jobs.new_project import package_name, write_project
from orbit_runner.utils.text_table import table_lines

_DESCRIPTION = """\
Write a project with a task of your own: a Python package, an experiment, a small CSV file to train
on, and a test. It trains as it is; its README.md says what to change."""


def main(flags: argparse.Namespace) -> int:
    """Writes a project and prints its files. Returns 0."""
    if not flags.project:
        raise RunnerError("DIR: is empty; specify the directory of the new project")
    directory = Path(flags.project)
    name = package_name(directory, flags.name)
    files = write_project(directory, name)
    commands = [f"cd {shlex.quote(flags.project)}", "make test", "make run"]
    if flags.json:
        summary = {"directory": flags.project, "name": name, "files": files, "next": commands}
        print(json.dumps(summary, indent=2))
        return 0
    print(
        "\n".join(
            [*table_lines(files.items()), "", "next:", *(f"  {command}" for command in commands)]
        )
    )
    return 0


def _add_flags(parser: Parser) -> None:
    parser.add_argument("project", type=DIRECTORY, help="directory to create, or an empty one")
    parser.add_argument(
        "--name",
        metavar="NAME",
        help="name of the package, the task and the experiment; by default made from DIR",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


COMMAND = Command("init", _DESCRIPTION, _add_flags, ["my_project"], main)
