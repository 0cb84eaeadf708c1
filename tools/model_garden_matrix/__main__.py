"""Tests every experiment of Model Garden: `python -m tools.model_garden_matrix`."""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Sequence
from pathlib import Path

from orbit_runner.errors import unknown_name_message
from orbit_runner.model_garden import catalogue
from tools.model_garden_matrix import results, table
from tools.model_garden_matrix.run import run_all

# The fastest experiment of each kind.
SAMPLE = ("bert/tagging", "mock", "resnet_imagenet", "seg_unet3d_test")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the experiments that have no result yet, or writes the table of results.

    Args:
        arguments: The command-line arguments; `sys.argv[1:]` if None.

    Returns:
        0; 1 if an experiment of the sample fails; 2 if a name is unknown; 130 if interrupted.
    """
    flags = _parser().parse_args(arguments)
    known = sorted(catalogue.experiments())
    if flags.table:
        page = table.table(known, results.read(flags.results), results.versions())
        table.PAGE.write_text(page, encoding="utf-8")
        print(table.PAGE)
        return 0
    wanted = list(SAMPLE) if flags.sample else flags.names or ["*"]
    unmatched = [name for name in wanted if not fnmatch.filter(known, name)]
    if unmatched:
        print(
            f"model_garden_matrix: {unknown_name_message('experiment', unmatched[0], known)}",
            file=sys.stderr,
        )
        return 2
    chosen = [name for name in known if any(fnmatch.fnmatch(name, one) for one in wanted)]
    try:
        whole = run_all(_remaining(chosen, flags), flags.results, flags.seconds)
    except KeyboardInterrupt:
        print("\nstopped; run the same command again to continue", file=sys.stderr)
        return 130
    return int(flags.sample and not whole)


def _remaining(chosen: list[str], flags: argparse.Namespace) -> list[str]:
    """Returns the experiments that still need to run."""
    done = {} if flags.anew else results.read(flags.results)
    left = [
        name
        for name in chosen
        if name not in done or (flags.again and not results.is_complete(done[name]))
    ]
    if len(left) < len(chosen):
        print(
            f"skipping {len(chosen) - len(left)} with results in {flags.results}", file=sys.stderr
        )
    return left


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.model_garden_matrix", description=__doc__
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="name or pattern of experiments; by default all"
    )
    parser.add_argument("--sample", action="store_true", help=f"run only {', '.join(SAMPLE)}")
    parser.add_argument("--again", action="store_true", help="run failed experiments again")
    parser.add_argument("--anew", action="store_true", help="ignore earlier results")
    parser.add_argument("--table", action="store_true", help="only write the table of results")
    parser.add_argument("--seconds", type=float, default=600, help="time limit of each process")
    parser.add_argument("--results", type=Path, default=results.DEFAULT, metavar="FILE")
    return parser


if __name__ == "__main__":
    sys.exit(main())
