"""Measures what portable numerics cost: `python -m benchmarks.portable [--rounds N]`.

Each network trains in turn with `runtime.numerics: portable`, natively as configured, and natively
with one thread per op. A ratio below 1 is the share of training speed that is left.
"""

from __future__ import annotations

import argparse
import statistics
import sys

from benchmarks.observability import CALLBACKS, measure

_QUIET = (
    "--quiet",
    "--trainer.report_interval=0",
    "--trainer.summary_interval=1000000",
    CALLBACKS,
)
_WORKLOADS = ("cnn", "mlp", "ResNet-20", "Transformer")
_PORTABLE = ("--runtime.numerics=portable", "--runtime.intra_op_threads=1")
_NATIVE = {"as configured": (), "one thread": ("--runtime.intra_op_threads=1",)}


def row(name: str, rounds: int) -> str:
    """Returns the table row of a network: the ratios to both native runs.

    Raises SystemExit if two portable runs have different weights.
    """
    ratios: dict[str, list[float]] = {words: [] for words in _NATIVE}
    hashes = set()
    for turn in range(rounds + 1):
        contenders = {"portable": _PORTABLE, **_NATIVE}
        order = [*contenders][turn % 3 :] + [*contenders][: turn % 3]
        found = {one: measure(name, (*_QUIET, *contenders[one])) for one in order}
        portable = found["portable"]
        hashes.add(portable.weights)
        if turn:  # The first round only warms the file cache.
            for words in _NATIVE:
                ratios[words].append(portable.speed / found[words].speed)
    if len(hashes) > 1:
        raise SystemExit(f"{name}: portable runs have different weights: {', '.join(hashes)}")
    cells = (
        f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"
        for found in ratios.values()
    )
    return f"| {name} | {' | '.join(cells)} |"


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.portable", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=_WORKLOADS, default=_WORKLOADS)
    parser.add_argument("--rounds", type=int, default=5)
    flags = parser.parse_args()
    heads = " | ".join(f"steps/s, portable / native, {words}" for words in _NATIVE)
    print(f"| | {heads} |\n|---|---|---|", flush=True)
    for name in flags.only:
        print(row(name, flags.rounds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
