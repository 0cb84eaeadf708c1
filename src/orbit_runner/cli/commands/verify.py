"""`runner verify`: checks whether the checkpoints of a run changed since they were written."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from orbit_runner import exit_codes
from orbit_runner.cli.command import Command, emit
from orbit_runner.cli.flags.config_flags import PROGRESS_FLAGS, progress_of
from orbit_runner.cli.flags.rows import JSON
from orbit_runner.cli.flags.values import RUN_DIRECTORY
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.errors import format_count
from orbit_runner.run_directory.verification import Verdict, verify
from orbit_runner.utils.text_table import table_lines

_DESCRIPTION = """\
Compare the checkpoints of a run with the records made when they were written: the size and SHA-256
of each file, and the SHA-256 of the weights and of the whole state as read from disk. Nothing is
changed. The exit code is 4 if anything differs."""


def main(flags: argparse.Namespace) -> int:
    """Verifies the checkpoints of a run. Returns 0 if all are as they were written, else 4."""
    from orbit_runner.distribute.tf_environment import prepare_environment

    prepare_environment(RuntimeConfig())
    with progress_of(flags, "verify", flags.run).shown_scope():
        verdicts = verify(Path(flags.run))
    damaged = sum(bool(verdict.damage) for verdict in verdicts)
    checkpoints = [
        {**dataclasses.asdict(verdict), "well": not verdict.damage} for verdict in verdicts
    ]
    result = {"run": flags.run, "well": not damaged, "checkpoints": checkpoints}
    lines = [*format_verdicts(verdicts), _summary_line(verdicts, damaged, flags.run)]
    return emit(flags, result, lines, exit_codes.DIFFERENT if damaged else 0)


def format_verdicts(verdicts: Sequence[Verdict]) -> list[str]:
    """Returns one line per checkpoint, below a heading."""
    rows = [("checkpoint", "weights", "state", "")]
    rows += [
        (
            verdict.name,
            verdict.weights[:12] or "-",
            verdict.state[:12] or "-",
            verdict.damage or "intact",
        )
        for verdict in verdicts
    ]
    return table_lines(rows)


def _summary_line(verdicts: Sequence[Verdict], damaged: int, run: str) -> str:
    if damaged:
        return f"{run}: {damaged} of {len(verdicts)} damaged"
    return f"{run}: intact, {format_count(len(verdicts), 'checkpoint')} read"


COMMAND = Command("verify", _DESCRIPTION, [RUN_DIRECTORY, *PROGRESS_FLAGS, JSON], ["runs/a"], main)
