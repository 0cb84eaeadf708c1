"""`runner report`: writes the report of a run as an HTML page."""

from __future__ import annotations

import argparse
from pathlib import Path

from orbit_runner.cli.command import Command
from orbit_runner.cli.flags.rows import flag
from orbit_runner.cli.flags.values import OUTPUT_FILE, RUN_DIRECTORY
from orbit_runner.errors import RunnerError
from orbit_runner.reporting.report import make_report
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.utils.files import write_atomically, write_output
from orbit_runner.utils.streams import print_result

_DESCRIPTION = """\
Write the report of a run: an HTML page with curves, config, environment and fingerprints. It is one
file without scripts. The run may still be in progress; repeat the command to update the page."""


def main(flags: argparse.Namespace) -> int:
    """Writes the report and prints its path. Returns 0."""
    directory = RunDirectory(Path(flags.run))
    directory.require_config()
    target = Path(flags.html) if flags.html else directory.report
    try:
        write = write_output if flags.html else write_atomically
        write(target, make_report(Path(flags.run), flags.run))
    except OSError as error:
        raise RunnerError(
            f"cannot write {target}: {error.strerror}\nuse --html=FILE", code="not-writable"
        ) from error
    # What is in /dev may be standard output, in which the page is.
    if target.is_file() and not target.is_relative_to("/dev"):
        print_result(str(target))
    return 0


_FLAGS = (
    RUN_DIRECTORY,
    flag("--html", "file to write (default: RUN/report.html)", type=OUTPUT_FILE),
)
COMMAND = Command("report", _DESCRIPTION, _FLAGS, ["runs/a --html=a.html"], main)
