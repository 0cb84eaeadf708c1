"""What the loop costs as a run gets older: speed and memory at step 1,000 and at step 100,000."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.contenders import silent
from benchmarks.networks import NETWORKS, session_of
from orbit_runner.training.controller import build_controller

_EARLY, _LATE, _PART = 1_000, 100_000, 1_000


def _resident_mib() -> float:
    with Path("/proc/self/status").open() as lines:
        (found,) = (line for line in lines if line.startswith("VmRSS"))
    return int(found.split()[1]) / 1024


def report(parts: int = 5) -> str:
    """Measures one run, `mlp` on the digits with a record each 1,000 steps.

    Args:
        parts: How many times 1,000 steps are measured at each place.

    Returns:
        A table.
    """
    (network,) = (n for n in NETWORKS if n.name == "mlp on digits")
    lines = [
        "### one run of `mlp` on the digits, as it gets older",
        "",
        "| from step | steps/s (median) | resident memory, MiB |",
        "|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        session = session_of(network.config(f"trainer.summary_interval={_PART}"), Path(folder))
        controller = build_controller(session)

        def to(step: int) -> float:
            start, before = time.perf_counter(), session.step
            with silent(), session.strategy.scope():
                controller.train(step, checkpoint_at_completion=False)
            return (step - before) / (time.perf_counter() - start)

        for place in (_EARLY, _LATE):
            to(place)
            memory = _resident_mib()
            speeds = [to(place + _PART * (part + 1)) for part in range(parts)]
            lines.append(f"| {place:,} | {statistics.median(speeds):,.0f} | {memory:.1f} |")
    return "\n".join([*lines, ""])
