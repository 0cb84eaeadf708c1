"""`runner init`: writes a project with a task of the user's own, or an experiment for data."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from orbit_runner.cli.command import Command, emit
from orbit_runner.cli.flags.rows import JSON, flag
from orbit_runner.cli.flags.values import DATASET, DIRECTORY
from orbit_runner.errors import RunnerError
from orbit_runner.init.new_project import package_name, write_project
from orbit_runner.utils.streams import print_message
from orbit_runner.utils.text_table import table_lines

_DESCRIPTION = """\
Write an experiment for a dataset, or a project with a task of your own.

With --from, DIR gets an experiment.yaml that trains on a table (CSV, JSON lines, Parquet, .npz), on
a directory with one directory of images per class, or on one with a text file per class. Its
comments say what was found in the data and what was decided; change what is wrong.

Without --from, DIR gets a Python package, an experiment, a small CSV file to train on, and a test.
It trains as it is; its README.md says what to change."""


def main(flags: argparse.Namespace) -> int:
    """Writes a project or an experiment, and prints its files. Returns 0."""
    if not flags.project:
        raise RunnerError(
            "is empty; specify the directory of the new project", path="DIR", code="not-set"
        )
    if flags.data is not None:
        return _write_experiment(flags)
    if flags.label:
        raise RunnerError(
            "has an effect only with --from, which names the data", path="--label", code="no-effect"
        )
    directory = Path(flags.project)
    name = package_name(directory, flags.name)
    files = write_project(directory, name)
    commands = [f"cd {shlex.quote(flags.project)}", "make test", "make run"]
    summary = {"directory": flags.project, "name": name, "files": files, "next": commands}
    return emit(flags, summary, _lines(files.items(), commands))


def _write_experiment(flags: argparse.Namespace) -> int:
    from orbit_runner.init.new_experiment import write_experiment

    if not flags.data:
        raise RunnerError("is empty; specify a file or a directory", path="--from", code="not-set")
    path, problems = write_experiment(
        Path(flags.project), flags.data, label=flags.label, name=flags.name
    )
    file = shlex.quote(str(path))
    files = {path.name: "the experiment: what was found in the data, and how it is trained"}
    commands = [f"runner inspect {file}", f"runner --experiment={file}"]
    summary = {"directory": flags.project, "files": files, "problems": problems, "next": commands}
    emit(flags, summary, _lines(files.items(), commands))
    if problems:
        print_message(f"warning: a run would report {problems}")
    return 0


def _lines(rows: Iterable[tuple[str, str]], commands: Sequence[str]) -> list[str]:
    return [*table_lines(rows), "", "next:", *(f"  {line}" for line in commands)]


_FLAGS = (
    flag("project", "directory to create, or an empty one", type=DIRECTORY),
    flag(
        "--from",
        "write an experiment for this file or directory, instead of a project",
        dest="data",
        type=DATASET,
    ),
    flag(
        "--label=COLUMN",
        "with --from: column of a table to predict; by default chosen by its name and values",
        default="",
    ),
    flag(
        "--name=NAME",
        "name of the package, the task and the experiment; by default made from DIR",
    ),
    JSON,
)
COMMAND = Command("init", _DESCRIPTION, _FLAGS, ["flowers --from=iris.csv", "my_project"], main)
