"""The argument RUN|EXPERIMENT: a run directory, or an experiment that may not have run yet."""

from __future__ import annotations

import argparse
from pathlib import Path

from orbit_runner.cli.flags.config_flags import Parser
from orbit_runner.errors import RunnerError
from orbit_runner.run_directory.paths import RunDirectory


def add_trained_argument(parser: Parser) -> None:
    """Adds the argument."""
    parser.add_argument(
        "trained",
        nargs="?",
        metavar="RUN|EXPERIMENT",
        help="a run directory, an experiment or a config file; same as --experiment",
    )


def apply_trained_argument(flags: argparse.Namespace) -> None:
    """Sets `flags.experiment` to the argument. Raises `RunnerError` if both are set or missing."""
    if flags.trained and flags.experiment and flags.trained != flags.experiment:
        raise RunnerError(
            f"--experiment: got {flags.experiment!r}, but RUN|EXPERIMENT is {flags.trained!r}\n"
            "pass only one of them"
        )
    flags.experiment = flags.trained or flags.experiment


def run_of(flags: argparse.Namespace) -> Path | None:
    """Returns the run directory that was specified, or None if it was an experiment."""
    path = Path(flags.experiment or "")
    return path if flags.experiment and RunDirectory(path).config.is_file() else None
