"""`runner verify`: checks whether the checkpoints of a run changed since they were written."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from orbit_runner import exit_codes
from orbit_runner.cli.command import Command, Parser, emit
from orbit_runner.cli.flags.config_flags import add_progress_flags, messages_scope, progress_of
from orbit_runner.cli.flags.values import RUN
from orbit_runner.config.schema.runtime import RuntimeConfig
from orbit_runner.errors import format_count
from orbit_runner.run_directory.verification import Verdict, Verification, verify
from orbit_runner.utils.text_table import table_lines

_DESCRIPTION = """\
Compare the checkpoints of a run with the records made when they were written: the size and SHA-256
of each file, the SHA-256 of the weights and of the whole state as read from disk, and the config.
Also check that weights, optimizer slots and averages are finite. Nothing is changed. The exit code
is 4 if anything differs or is not finite."""


def main(flags: argparse.Namespace) -> int:
    """Verifies the checkpoints of a run. Returns 0 if all are as they were written, else 4."""
    from orbit_runner.distribute.tf_environment import prepare_environment

    prepare_environment(RuntimeConfig())
    with messages_scope(flags), progress_of(flags, "verify", flags.run).shown_scope():
        verification = verify(Path(flags.run))
    lines = [
        *format_verdicts(verification.verdicts),
        *filter(None, [verification.config_problem]),
        _summary_line(verification, flags.run),
    ]
    emit(flags, _as_dict(verification, flags.run), lines)
    return 0 if verification.is_intact else exit_codes.DIFFERENT


def _add_flags(parser: Parser) -> None:
    parser.add_argument(
        "run",
        type=RUN,
        help="run directory, directory of checkpoints, or one checkpoint without its suffix",
    )
    add_progress_flags(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _as_dict(verification: Verification, run: str) -> dict[str, object]:
    verdicts = [
        {**dataclasses.asdict(verdict), "well": verdict.is_intact}
        for verdict in verification.verdicts
    ]
    return {
        "run": run,
        "well": verification.is_intact,
        "config_problem": verification.config_problem,
        "checkpoints": verdicts,
    }


def format_verdicts(verdicts: Sequence[Verdict]) -> list[str]:
    """Returns one line per checkpoint, below a heading."""
    rows = [("checkpoint", "weights", "state", "")]
    for verdict in verdicts:
        rows.append(
            (
                verdict.name,
                verdict.weights[:12] or "-",
                verdict.state[:12] or "-",
                describe_verdict(verdict),
            )
        )
    return table_lines(rows)


def describe_verdict(verdict: Verdict) -> str:
    """Returns a description of a checkpoint's condition."""
    if verdict.damage:
        return verdict.damage
    if verdict.unfinished:
        return "incomplete: it was being written or removed when the run stopped"
    if verdict.non_finite:
        return f"not finite: {verdict.non_finite}"
    if verdict.other_config:
        return "intact, but made with a different config"
    return "intact" if verdict.recorded else "no fingerprint"


def _summary_line(verification: Verification, run: str) -> str:
    count = len(verification.verdicts)
    if verification.is_intact:
        bare = sum(not verdict.recorded for verdict in verification.verdicts)
        foreign = f"; {bare} of them without a fingerprint to compare with" if bare else ""
        return f"{run}: intact, {format_count(count, 'checkpoint')} read{foreign}"
    intact = [verdict for verdict in verification.verdicts if not verdict.damage]
    counts = {
        "damaged": count - len(intact),
        "not finite": sum(bool(verdict.non_finite) for verdict in intact),
        "made with a different config than config.yaml": sum(v.other_config for v in intact),
    }
    parts = [f"{number} of {count} {what}" for what, number in counts.items() if number]
    if verification.config_problem:
        parts.append("config.yaml does not load")
    return f"{run}: {', '.join(parts)}"


COMMAND = Command("verify", _DESCRIPTION, _add_flags, ["runs/a"], main)
