"""Runs targets and prints a table: `python -m tools.fuzz [TARGET …] [--cases=N]`.

A target is a parser or a reader of files. It is called with valid files that were changed at
random, and must return or raise a `RunnerError` whose message names the file. Any other error, a
second of CPU time, a gibibyte of memory, a write elsewhere and any code that is run are problems.
The content of the first case of each problem is written to the directory `--found`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.fuzz.target import Case, Target
from tools.fuzz.targets import TARGETS
from tools.fuzz.workers import Outcome, run_cases

_HEAD = ("target", "cases", "valid", "per CPU s", "problems", "longest", "memory")
_FOUND = "runs/fuzz"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the targets and returns 1 if there is a problem."""
    flags = _parser().parse_args(argv)
    targets = [TARGETS[name] for name in flags.targets or TARGETS]
    if flags.case:
        return _run_file(targets[0], Path(flags.case))
    if flags.atheris:
        from tools.fuzz.coverage import fuzz

        return fuzz(targets[0], flags.cases)
    print("".join(f"{word:>12}" for word in _HEAD), flush=True)
    bad = 0
    for target in targets:
        outcome = run_cases(
            target,
            flags.cases,
            seed=flags.seed,
            processes=flags.processes,
            seconds=flags.seconds,
        )
        print(_row(target.name, outcome), flush=True)
        for finding in outcome.findings.values():
            print(f"    case {finding.number}: {finding.message}", flush=True)
        bad += outcome.problems
        _keep(target, outcome, flags.seed, Path(flags.found))
    return int(bad > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[[], *TARGETS], help="by default all")
    parser.add_argument("--cases", type=int, default=2000, help="cases of each target")
    parser.add_argument("--seconds", type=float, default=1e9, help="time limit of each target")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other cases")
    parser.add_argument("--found", default=_FOUND, help="where cases with problems are written")
    parser.add_argument("--case", help="runs one target with this file, with a traceback")
    parser.add_argument(
        "--atheris", action="store_true", help="lets atheris choose the cases by coverage"
    )
    return parser


def _row(name: str, found: Outcome) -> str:
    cells = (
        f"{found.cases:,}",
        f"{100 * found.valid / max(1, found.cases):.0f} %",
        f"{found.cases / max(found.cpu_seconds, 1e-9):,.0f}",
        f"{found.problems:,}",
        f"{found.longest:.2f} s",
        f"{found.extra_bytes / 2**20:,.0f} MiB",
    )
    return f"{name:>12}" + "".join(f"{cell:>12}" for cell in cells)


def _keep(target: Target, outcome: Outcome, seed: int, folder: Path) -> None:
    if not outcome.findings:
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        case = Case(target, Path(scratch))
        for finding in outcome.findings.values():
            path = folder / target.name / f"seed-{seed}-case-{finding.number}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(case.content(seed, finding.number))


def _run_file(target: Target, path: Path) -> int:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        print("valid" if Case(target, Path(scratch)).run(path.read_bytes()) else "an error")
    return 0


if __name__ == "__main__":
    sys.exit(main())
