"""Compares this checkout with another: `python -m benchmarks.versions OTHER [--only NAME …]`.

Each workload runs in both checkouts in turn, in a separate process each. A ratio above 1 means that
this checkout is faster. Other load on the machine affects processor time less than wall time.
"""

from __future__ import annotations

import argparse
import compileall
import dataclasses
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tools.fingerprints import ROOT, write_cifar, write_records, write_sample

_SYNTHETIC = f"--config_file={ROOT}/configs/data/synthetic.yaml"
_TRAIN = "--mode=train"


@dataclasses.dataclass(frozen=True)
class Workload:
    """A command of the runner.

    `speed` is the split in `metrics.jsonl` whose steps per second are compared, if any.
    """

    words: tuple[str, ...]
    speed: str = ""
    write_data: Callable[[Path], None] = lambda directory: None
    trained_first: bool = False  # Whether the run directory contains a finished run.


WORKLOADS = {
    "import": Workload(("--help",)),
    "list": Workload(("list",)),
    "show": Workload(("show", "--experiment=resnet_cifar")),
    "first step": Workload(("run", "--experiment=digits", "--train_steps=1", _TRAIN)),
    "mlp": Workload(("run", "--experiment=digits_mlp", "--train_steps=12000", _TRAIN), "train"),
    "cnn": Workload(("run", "--experiment=digits", "--train_steps=1500", _TRAIN), "train"),
    "cnn, pipeline": Workload(
        ("run", "--experiment=digits", "--train_steps=1500", _TRAIN,
         "--task.train_data.on_device=false"), "train",
    ),
    "cnn, mirrored × 2": Workload(
        ("run", "--experiment=digits", "--train_steps=400", _TRAIN,
         f"--config_file={ROOT}/configs/runtime/mirrored_2cpu.yaml"), "train",
    ),
    "ResNet-20": Workload(
        ("run", "--experiment=resnet_cifar", "--data_dir=.", "--train_steps=60", _TRAIN,
         "--task.train_data.global_batch_size=32"), "train", write_cifar,
    ),
    "NeuMF": Workload(
        ("run", "--experiment=ncf_movielens", _SYNTHETIC, "--train_steps=300", _TRAIN), "train"
    ),
    "Transformer": Workload(
        ("run", "--experiment=transformer_multi30k", _SYNTHETIC, "--train_steps=60", _TRAIN,
         "--task.train_data.global_batch_size=16"), "train",
    ),
    "TFRecord": Workload(
        ("run", "--experiment=records.yaml", "--train_steps=2000", _TRAIN), "train", write_records
    ),
    "ResNet-50 of Model Garden": Workload(
        ("run", "--experiment=official/resnet_imagenet", "--config_file=small.yaml", _TRAIN),
        "", write_sample("resnet_imagenet"),
    ),
    "200 checkpoints": Workload(
        ("run", "--experiment=digits_mlp", "--train_steps=2000", _TRAIN,
         "--trainer.checkpoint_interval=10"),
    ),
    "evaluation": Workload(
        ("run", "--experiment=digits", "--mode=eval"), trained_first=True
    ),
    "resume": Workload(
        ("run", "--experiment=digits", "--train_steps=50", _TRAIN, "--resume=override"),
        trained_first=True,
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The wall time and the processor time of a process in seconds, and its steps per second."""

    seconds: float
    processor: float
    speed: float | None


def measure(workload: Workload, checkout: Path) -> Measurement:
    """Runs a workload once in a checkout."""
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        workload.write_data(directory)
        if workload.trained_first:
            _run(checkout, directory, ("run", "--experiment=digits", "--train_steps=40", _TRAIN))
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        _run(checkout, directory, workload.words)
        seconds = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Measurement(seconds, processor, _speed(directory, workload.speed))


def _run(checkout: Path, directory: Path, words: tuple[str, ...]) -> None:
    flags = [f"--model_dir={directory / 'run'}"] if words[0] == "run" else []
    paths = os.pathsep.join([f"{checkout}/src", str(checkout)])
    subprocess.run(
        [sys.executable, "-m", "orbit_runner", *words, *flags],
        cwd=directory, env={**os.environ, "PYTHONPATH": paths, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True, check=True,
    )  # fmt: skip


def _speed(directory: Path, split: str) -> float | None:
    if not split:
        return None
    lines = (directory / "run" / "metrics.jsonl").read_text().splitlines()
    speeds = [
        row["steps_per_second"]
        for row in map(json.loads, lines)
        if row["split"] == split and row.get("steps_per_second")
    ]
    # If there are several records, the first one contains the first calls of the graph.
    return statistics.median(speeds[1:] or speeds)


def row(name: str, workload: Workload, other: Path, rounds: int) -> str:
    """Returns the table row of a workload."""
    pairs: list[tuple[Measurement, Measurement]] = []
    for turn in range(rounds + 1):
        order = [ROOT, other] if turn % 2 else [other, ROOT]
        measurements = {checkout: measure(workload, checkout) for checkout in order}
        if turn:  # The first round only warms the file cache.
            pairs.append((measurements[ROOT], measurements[other]))
    cells = [
        _ratio([b.seconds / a.seconds for a, b in pairs]),
        _ratio([b.processor / a.processor for a, b in pairs]),
    ]
    speeds = [a.speed / b.speed for a, b in pairs if a.speed and b.speed]
    cells.append(_ratio(speeds) if speeds else "")
    return f"| {name} | {' | '.join(cells)} |"


def _ratio(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions", description=__doc__)
    parser.add_argument("other", type=Path, help="another checkout of this repository")
    parser.add_argument("--only", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=5)
    flags = parser.parse_args()
    # As for a user, whose Python caches bytecode; here, writing it may be disabled.
    for checkout in (ROOT, flags.other):
        compileall.compile_dir(checkout / "src", quiet=1)
    print("| | wall time | processor time | steps/s |\n|---|---|---|---|", flush=True)
    for name in flags.only:
        print(row(name, WORKLOADS[name], flags.other.resolve(), flags.rounds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
