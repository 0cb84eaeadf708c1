"""A pass/fail table of every experiment of Model Garden: `-m tools.model_garden_matrix`."""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Sequence
from pathlib import Path

from orbit_runner.errors import unknown
from orbit_runner.model_garden import catalogue
from tools.model_garden_matrix import results, table
from tools.model_garden_matrix.run import run_all

# One of each kind, and the quickest of it.
SAMPLE = ("bert/tagging", "mock", "resnet_imagenet", "seg_unet3d_test")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs experiments that have no result yet, or writes the table of those that have.

    Args:
        arguments: The arguments after the program's name; those of the process where None.

    Returns:
        0; 1 where an experiment of the sample fails; 2 for a name that there is not.
    """
    flags = _parser().parse_args(arguments)
    known = sorted(catalogue.experiments())
    if flags.table:
        page = table.table(known, results.read(flags.results), results.versions())
        table.PAGE.write_text(page, encoding="utf-8")
        print(table.PAGE)
        return 0
    wanted = list(SAMPLE) if flags.sample else flags.names or ["*"]
    strange = [name for name in wanted if not fnmatch.filter(known, name)]
    if strange:
        print(f"model_garden_matrix: {unknown('experiment', strange[0], known)}", file=sys.stderr)
        return 2
    chosen = [name for name in known if any(fnmatch.fnmatch(name, one) for one in wanted)]
    try:
        whole = run_all(_open(chosen, flags), flags.results, flags.seconds)
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return 130
    return int(flags.sample and not whole)


def _open(chosen: list[str], flags: argparse.Namespace) -> list[str]:
    """Returns the experiments that are still to be run."""
    done = {} if flags.anew else results.read(flags.results)
    left = [
        name
        for name in chosen
        if name not in done or (flags.again and not results.is_whole(done[name]))
    ]
    if len(left) < len(chosen):
        print(f"{len(chosen) - len(left)} have results in {flags.results}", file=sys.stderr)
    return left


def _parser() -> argparse.ArgumentParser:
    to = argparse.ArgumentParser(prog="python -m tools.model_garden_matrix", description=__doc__)
    to.add_argument("names", nargs="*", metavar="NAME", help="a name or a pattern; all if none")
    to.add_argument("--sample", action="store_true", help=f"only {', '.join(SAMPLE)}")
    to.add_argument("--again", action="store_true", help="run those once more that failed")
    to.add_argument("--anew", action="store_true", help="run those once more that have results")
    to.add_argument("--table", action="store_true", help="run none; write the table of results")
    to.add_argument("--seconds", type=float, default=600, help="how long a process may take")
    to.add_argument("--results", type=Path, default=results.DEFAULT, metavar="FILE")
    return to


if __name__ == "__main__":
    sys.exit(main())
