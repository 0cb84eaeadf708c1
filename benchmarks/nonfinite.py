"""Measures what the check for NaN and infinity costs: `python -m benchmarks.nonfinite`.

Each workload runs in turn with the check between the pieces of a loop and without it. The weights
must be equal. A ratio below 1 is the share of training speed that is left with the check.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from benchmarks.observability import row
from orbit_runner import Callback

_WORKLOADS = ("mlp", "cnn", "ResNet-20", "Transformer")
_WITH = ("--quiet", "--params_override=callbacks=[benchmarks.nonfinite.Checked]")
_WITHOUT = ("--quiet", "--params_override=callbacks=[benchmarks.nonfinite.Unchecked]")


class Checked(Callback):
    """Changes nothing, so that both runs have a callback."""


class Unchecked(Callback):
    """Turns the check off."""

    def on_train_begin(self, run: Any) -> None:
        """Removes the check from the trainer."""
        run.trainer.finite_check = None


def main() -> int:
    """Prints the table."""
    to = argparse.ArgumentParser(prog="python -m benchmarks.nonfinite", description=__doc__)
    to.add_argument("--only", nargs="+", choices=_WORKLOADS, default=_WORKLOADS)
    to.add_argument("--rounds", type=int, default=5)
    asked = to.parse_args()
    print("| | steps/s, with / without the check | weights |\n|---|---|---|", flush=True)
    for name in asked.only:
        print(row(name, asked.rounds, _WITH, _WITHOUT), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
