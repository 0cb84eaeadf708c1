"""Compares two synchronous workers with one process, on the same cores with the same global batch.

Each contender is a separate run, started by the command line. Its speed is that of the steps after
the first record, so startup and tracing do not count. On one machine, the workers compete for its
cores. So the result shows the overhead of two workers, including gradients over the loopback
interface.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import Figure, table

TITLE = "two workers / one process, `resnet_cifar` (ResNet-20), global batch 128"
UNIT = "steps/s"
ROUNDS, _STEPS, _RECORD = 5, 60, 20
_FLAGS = (
    "--experiment=resnet_cifar",
    "--config_file=configs/data/synthetic.yaml",
    "--mode=train",
    f"--train_steps={_STEPS}",
    f"--trainer.summary_interval={_RECORD}",
    f"--trainer.checkpoint_interval={_STEPS}",
)
_CONTENDERS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "one process": ((), ("--distribution_strategy=one_device",)),
    "`mirrored`, two replicas": (
        (),
        ("--distribution_strategy=mirrored", "--runtime.num_virtual_devices=2"),
    ),
    "two workers": (
        ("launch", "--workers=2", "--"),
        ("--distribution_strategy=multi_worker_mirrored",),
    ),
}


def _speed(name: str) -> float:
    """Runs a contender and returns its steps per second, without the first record."""
    first, last = _CONTENDERS[name]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "orbit_runner", *first, *_FLAGS, *last]
        subprocess.run([*command, f"--model_dir={folder}/run"], check=True, capture_output=True)
        lines = Path(folder, "run", "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    speeds = [json.loads(line)["steps_per_second"] for line in lines]
    return statistics.mean(speeds[1:])


def measure(rounds: int = ROUNDS) -> list[Figure]:
    """Runs the contenders in turn, and returns their figures relative to one process."""
    speeds: dict[str, list[float]] = {name: [] for name in _CONTENDERS}
    for turn in range(rounds):
        names = list(_CONTENDERS)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            speeds[name].append(_speed(name))
            print(f"  {name}: {speeds[name][-1]:.2f} steps/s", file=sys.stderr, flush=True)
    base = speeds["one process"]
    figures = []
    for name, own in speeds.items():
        ratios = [a / b for a, b in zip(own, base, strict=True)]
        median = statistics.median(ratios)
        figures.append(Figure(name, statistics.median(own), median, min(ratios), max(ratios)))
    return figures


def report() -> str:
    """Returns the figures as a Markdown table."""
    return table(TITLE, UNIT, measure())
