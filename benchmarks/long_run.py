"""Compares the speed and the memory of a run at step 1,000 and at step 100,000."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.baselines import Run, silent_scope
from benchmarks.harness import alternate, table
from benchmarks.networks import NETWORKS, build_run
from orbit_runner.train.controller import build_controller

_EARLY, _LATE, _PART = 1_000, 100_000, 2_000


def report(rounds: int = 15) -> str:
    """Measures two runs of `mlp` on the digits, early and late in training, in turn."""
    with tempfile.TemporaryDirectory() as folder:
        old, memory = _Training(Path(folder, "old")), []
        for step in (_EARLY, _LATE):
            old.train_until(step)
            memory.append(_resident_mib())
        young = _Training(Path(folder, "young"))
        young.train_until(_EARLY)
        young_label, old_label = f"from step {_EARLY:,}", f"from step {_LATE:,}"
        runs: dict[str, Run] = {young_label: young.train_part, old_label: old.train_part}
        figures = alternate(runs, baseline=young_label, rounds=rounds)
    title = "two runs of `mlp` on the digits, early and late in training"
    return (
        table(title, "steps/s", figures)
        + f"\nResident memory of the late run: {memory[0]:.1f} MiB at step {_EARLY:,}, "
        f"{memory[1]:.1f} MiB at step {_LATE:,}.\n"
    )


class _Training:
    """A run that writes a record every 1,000 steps."""

    def __init__(self, folder: Path) -> None:
        (network,) = (n for n in NETWORKS if n.name == "mlp on digits")
        self._session: Any = build_run(network.config("trainer.summary_interval=1000"), folder)
        self._controller = build_controller(self._session)

    def train_until(self, step: int) -> None:
        with silent_scope(), self._session.strategy.scope():
            self._controller.train(step, checkpoint_at_completion=False)

    def train_part(self) -> int:
        self.train_until(self._session.step + _PART)
        return _PART


def _resident_mib() -> float:
    with Path("/proc/self/status").open() as lines:
        (found,) = (line for line in lines if line.startswith("VmRSS"))
    return int(found.split()[1]) / 1024
