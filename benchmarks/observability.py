"""Measures what watching a run costs: `python -m benchmarks.observability [--rounds N]`.

Each workload runs in turn with everything on (a live display in a terminal, the report, records and
TensorBoard) and with everything off. The weights must be equal. A ratio below 1 is the share of
training speed that is left with everything on. The report collects examples and layers once; these
seconds are not part of the speed, and have a column of their own. On a machine that others use, the
speeds of two equal runs differ by a tenth; the processor time differs less.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pty
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from orbit_runner import Callback
from tools.fingerprints import ROOT, write_cifar

Flags = tuple[str, ...]

# At least 15 seconds of training on two cores.
_STEPS = {"cnn": 20000, "mlp": 120000, "ResNet-20": 200, "Transformer": 120}
_WORDS = {
    # Few checkpoints, because the times of writes to a disk vary more than what is measured.
    "cnn": (
        "--experiment=digits",
        "--trainer.validation_interval=10000",
        "--trainer.checkpoint_interval=10000",
    ),
    "mlp": (
        "--experiment=digits_mlp",
        "--trainer.validation_interval=40000",
        "--trainer.checkpoint_interval=40000",
    ),
    "ResNet-20": (
        "--experiment=resnet_cifar",
        "--data_dir=.",
        "--task.train_data.global_batch_size=32",
        "--trainer.validation_interval=1000",
        "--trainer.steps_per_loop=10",
    ),
    "Transformer": (
        "--experiment=transformer_multi30k",
        f"--config_file={ROOT}/configs/data/synthetic.yaml",
        "--task.train_data.global_batch_size=16",
        "--trainer.validation_interval=1000",
    ),
}
# The report is updated six times as often as by default. Records are those of the experiment.
_TIMED = "benchmarks.observability.ProcessorTime"
CALLBACKS = f"--params_override=callbacks=[{_TIMED}]"
_ON = ("--progress=bar", "--trainer.report_interval=10", CALLBACKS)
_OFF = ("--quiet", "--trainer.report_interval=0", "--trainer.summary_interval=1000000", CALLBACKS)
_SECONDS = "processor_seconds.txt"


@dataclasses.dataclass(frozen=True)
class Measurement:
    """A run: steps per second, steps per second of processor time, and SHA-256 of the weights.

    `collecting` is how long the report collected data, in seconds.
    """

    speed: float
    processor_speed: float
    collecting: float
    weights: str


class ProcessorTime(Callback):
    """Writes the processor time that all threads take during training."""

    def on_train_begin(self, run: Any) -> None:
        """Begins to measure."""
        self._start = time.process_time()

    def on_train_end(self, run: Any) -> None:
        """Writes the seconds to a file in the working directory."""
        Path(_SECONDS).write_text(str(time.process_time() - self._start))


def measure(name: str, flags: Flags) -> Measurement:
    """Runs a workload, which must have the callback `ProcessorTime`."""
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        if name == "ResNet-20":
            write_cifar(directory)
        steps = _STEPS[name]
        _run(directory, [*_WORDS[name], f"--train_steps={steps}", *flags])
        record = json.loads((directory / "run" / "run.json").read_text())["attempts"][-1]
        seconds = record["seconds"]
        return Measurement(
            speed=steps / seconds["training"],
            processor_speed=steps / float((directory / _SECONDS).read_text()),
            collecting=seconds.get("collecting", 0.0),
            weights=record["weights"],
        )


def _run(directory: Path, words: list[str]) -> None:
    """Runs the runner with a pseudo-terminal as its standard error."""
    paths = os.pathsep.join([f"{ROOT}/src", str(ROOT)])
    command = [sys.executable, "-m", "orbit_runner", "run", "--mode=train", "--model_dir=run"]
    ours, theirs = pty.openpty()
    reader = threading.Thread(target=_drain, args=(ours,), daemon=True)
    reader.start()
    try:
        subprocess.run(
            [*command, *words], cwd=directory, stdout=subprocess.DEVNULL, stderr=theirs, check=True,
            env={**os.environ, "PYTHONPATH": paths, "TERM": "xterm-256color", "COLUMNS": "100"},
        )  # fmt: skip
    finally:
        os.close(theirs)
        reader.join(timeout=5)
        os.close(ours)


def _drain(terminal: int) -> None:
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        return  # The other end was closed.


def row(name: str, rounds: int, on_flags: Flags = _ON, off_flags: Flags = _OFF) -> str:
    """Returns the table row of a workload: speeds with some flags, divided by those with others.

    Raises SystemExit if the weights differ.
    """
    pairs = []
    for turn in range(rounds + 1):
        order = [on_flags, off_flags] if turn % 2 else [off_flags, on_flags]
        found = {flags: measure(name, flags) for flags in order}
        on, off = found[on_flags], found[off_flags]
        if on.weights != off.weights:
            raise SystemExit(f"{name}: the weights differ, {on.weights} and {off.weights}")
        if turn:  # The first round only warms the file cache.
            pairs.append((on, off))
            speed = f"{on.speed / off.speed:.3f}"
            print(f"{name}: round {turn} of {rounds}, {speed}", file=sys.stderr, flush=True)
    speeds = _median([on.speed / off.speed for on, off in pairs])
    processor = _median([on.processor_speed / off.processor_speed for on, off in pairs])
    collecting = statistics.median(on.collecting for on, _ in pairs)
    return f"| {name} | {speeds} | {processor} | {collecting:.2f} s | equal |"


def _median(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.observability", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(_STEPS), default=list(_STEPS))
    parser.add_argument("--rounds", type=int, default=5)
    flags = parser.parse_args()
    print(
        "| | steps/s, on / off | steps per processor second, on / off | collected once | weights |"
    )
    print("|---|---|---|---|---|", flush=True)
    for name in flags.only:
        print(row(name, flags.rounds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
