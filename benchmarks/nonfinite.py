"""Measures what the check for NaN and infinity costs: `python -m benchmarks.nonfinite`.

Each workload runs in turn with the check between the pieces of a loop and without it. The weights
must be equal. A ratio below 1 is the share of training speed that is left with the check. On a
machine that others use, the ratio of two runs varies by a tenth, so the time inside the check is
measured, too, as a share of the time of training.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.observability import row
from orbit_runner import Callback

# The environment variable with the file to which each run with the check adds its share.
_SHARES = "ORBIT_BENCHMARK_CHECK_SHARES"
_WORKLOADS = ("mlp", "cnn", "ResNet-20", "Transformer")
_CALLBACKS = "--params_override=callbacks=[benchmarks.observability.ProcessorTime, {}]"
_WITH = ("--quiet", _CALLBACKS.format("benchmarks.nonfinite.CheckTimer"))
_WITHOUT = ("--quiet", _CALLBACKS.format("benchmarks.nonfinite.CheckRemover"))


class CheckTimer(Callback):
    """Measures the share of the training time that is spent in the check."""

    def on_train_begin(self, run: Any) -> None:
        """Begins to measure."""
        self._inside, self._start = 0.0, time.perf_counter()
        check = run.trainer.finite_check
        check.end_piece = self._time_calls(check.end_piece)

    def _time_calls(self, end_piece: Callable[..., None]) -> Callable[..., None]:
        def call_and_time(*args: Any) -> None:
            start = time.perf_counter()
            end_piece(*args)
            self._inside += time.perf_counter() - start

        return call_and_time

    def on_train_end(self, run: Any) -> None:
        """Adds the share to the file of the benchmark."""
        share = self._inside / (time.perf_counter() - self._start)
        with Path(os.environ[_SHARES]).open("a", encoding="utf-8") as file:
            file.write(f"{share}\n")


class CheckRemover(Callback):
    """Turns the check off."""

    def on_train_begin(self, run: Any) -> None:
        """Replaces the check."""
        run.trainer.finite_check.end_piece = lambda step: None


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nonfinite", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=_WORKLOADS, default=_WORKLOADS)
    parser.add_argument("--rounds", type=int, default=5)
    flags = parser.parse_args()
    columns = ["steps/s", "steps per processor second", "collected once", "weights", "in the check"]
    print(f"| with / without the check | {' | '.join(columns)} |", flush=True)
    print("|---|---|---|---|---|---|", flush=True)
    for name in flags.only:
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as file:
            os.environ[_SHARES] = file.name
            found = row(name, flags.rounds, _WITH, _WITHOUT)
            share = statistics.median(map(float, file.read().split()))
        print(f"{found} {share:.2%} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
