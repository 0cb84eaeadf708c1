"""Watches what a run holds while it trains: memory, open files, threads, and its directory."""

import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

# These grow by a line or an event for each record, checkpoint or evaluation. The report shows them,
# and grows up to its number of points.
_RECORDS = ("metrics.jsonl", "fingerprints.jsonl", "events.out.*", "report.html")
_SECONDS_BETWEEN_SAMPLES = 0.1


@dataclasses.dataclass(frozen=True)
class Sample:
    """What a process holds at a step. Sizes are in bytes."""

    step: int
    memory: int
    open_files: int
    threads: int
    files: int  # in the run directory
    directory: int  # all files of the run directory but the records
    records: int


def command(flags: Sequence[str], model_dir: Path) -> list[str]:
    """Returns the command of a run."""
    words = [sys.executable, "-m", "orbit_runner", "run", *flags]
    return [*words, f"--model_dir={model_dir}", "--quiet", "--json"]


def watch(flags: Sequence[str], model_dir: Path, seconds: float) -> list[Sample]:
    """Runs to the end and returns the samples that were taken during training."""
    samples: list[Sample] = []
    errors = model_dir.parent / f"{model_dir.name}.log"
    with errors.open("w") as to:
        run = subprocess.Popen(command(flags, model_dir), stdout=subprocess.DEVNULL, stderr=to)
        try:
            process, end = psutil.Process(run.pid), time.monotonic() + seconds
            while run.poll() is None:
                assert time.monotonic() < end, f"the run takes more than {seconds} s"
                time.sleep(_SECONDS_BETWEEN_SAMPLES)
                if (sample := _sample(process, model_dir)) is not None:
                    samples.append(sample)
        finally:
            run.kill()
            run.wait()
    assert run.returncode == 0, errors.read_text()
    return samples


def _sample(process: psutil.Process, model_dir: Path) -> Sample | None:
    """Returns None if no step is recorded yet, or if the process has ended."""
    step = last_step(model_dir)
    if step is None:
        return None
    try:
        with process.oneshot():
            resources = (process.memory_info().rss, process.num_fds(), process.num_threads())
    except psutil.Error:
        return None
    if not resources[0]:  # It has ended, and nobody has waited for it yet.
        return None
    sizes = _sizes(model_dir)
    records = sum(size for path, size in sizes.items() if any(map(path.match, _RECORDS)))
    return Sample(step, *resources, len(sizes), sum(sizes.values()) - records, records)


def last_step(model_dir: Path) -> int | None:
    """Returns the step of the last complete record."""
    try:
        *lines, _ = (model_dir / "metrics.jsonl").read_text().split("\n")
    except OSError:
        return None
    return json.loads(lines[-1])["step"] if lines else None


def _sizes(directory: Path) -> dict[Path, int]:
    sizes: dict[Path, int] = {}
    # Checkpoints are renamed and deleted meanwhile; `os.walk` ignores directories that are gone.
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                sizes[Path(folder, name)] = os.stat(os.path.join(folder, name)).st_size
    return sizes


def between(samples: Sequence[Sample], first: float, last: float) -> list[Sample]:
    """Returns the samples of a part of the run; `first` and `last` are parts of its last step."""
    end = samples[-1].step
    return [sample for sample in samples if first * end <= sample.step <= last * end]


def middle(samples: Sequence[Sample], name: str) -> int:
    """Returns the median of an attribute."""
    return statistics.median_low([getattr(sample, name) for sample in samples])


def least(samples: Sequence[Sample], name: str) -> int:
    """Returns the smallest value of an attribute."""
    return min(getattr(sample, name) for sample in samples)


def speed(model_dir: Path, first: float, last: float) -> float:
    """Returns the median of the recorded steps per second of a part of the run."""
    lines = (model_dir / "metrics.jsonl").read_text().splitlines()
    records: list[dict[str, Any]] = [json.loads(line) for line in lines]
    end = records[-1]["step"]
    return statistics.median(
        record["steps_per_second"]
        for record in records
        if record.get("split") == "train"
        and first * end <= record["step"] <= last * end
        and record.get("steps_per_second")
    )
