"""The data of a run that reports and comparisons show. Does not import TensorFlow.

The config is not built, so that runs of a task that is not installed can be shown.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping
from pathlib import Path

from orbit_runner.errors import format_count
from orbit_runner.run_directory.branch import Ancestry, ancestry
from orbit_runner.run_directory.config import read_settings
from orbit_runner.run_directory.history import RunHistory, read_history
from orbit_runner.run_directory.metric_records import (
    SPEED,
    Curves,
    read_curves,
    read_partial_records,
)
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.run_directory.run_summary import RunSummary, attempt_seconds, read_summary

# Values of records that do not measure the quality of a model.
NON_METRICS = (SPEED, "validation_examples", "tflops_per_second", "mfu")


@dataclasses.dataclass(frozen=True)
class RunData:
    """The config, records and fingerprints of a run."""

    name: str  # A short name.
    summary: RunSummary
    settings: Mapping[str, object]
    curves: Curves
    history: RunHistory
    ancestry: Ancestry = dataclasses.field(default_factory=dict)
    # Training records that average over fewer steps than others: their number by step.
    partial_records: Mapping[int, int] = dataclasses.field(default_factory=dict)

    @property
    def seconds(self) -> float | None:
        """The wall time of all starts that ended, in seconds; None if no start ended."""
        durations = [
            seconds for attempt in self.history.attempts if (seconds := attempt_seconds(attempt))
        ]
        return sum(durations) if durations else None

    @property
    def phase_seconds(self) -> dict[str, float]:
        """The seconds of each phase of all starts that ended; empty if they are not known."""
        totals: dict[str, float] = {}
        for attempt in self.history.attempts:
            times = attempt.get("seconds")
            for name, value in times.items() if isinstance(times, dict) else ():
                if isinstance(value, (int, float)):
                    totals[str(name)] = totals.get(str(name), 0.0) + value
        return totals

    @property
    def steps_per_second(self) -> float | None:
        """The median of the training records without the first one, which includes tracing."""
        values = list(self.curves.get(("train", SPEED), {}).values())
        finite = [value for value in values[1:] or values if math.isfinite(value)]
        return statistics.median(finite) if finite else None

    @property
    def weights(self) -> str:
        """SHA-256 of the weights: those at the end, or of the newest checkpoint."""
        prints = self.history.fingerprints
        return self.summary.weights or (prints[max(prints)].weights if prints else "")

    @property
    def devices(self) -> str:
        """The devices of the last start."""
        last = self.history.attempts[-1] if self.history.attempts else {}
        devices = last.get("devices")
        if not isinstance(devices, dict):
            return ""
        gpus = [str(name) for name in devices.get("gpus") or () if name]
        threads = devices.get("cpu_cores", "?")
        return ", ".join(gpus) or f"CPU, {threads} thread{'' if threads == 1 else 's'}"

    @property
    def software(self) -> Mapping[str, object]:
        """Versions of packages and the revision of the code at the last start."""
        last = self.history.attempts[-1] if self.history.attempts else {}
        software = last.get("software")
        code = _describe_code(last.get("code"))
        return {
            **(software if isinstance(software, dict) else {}),
            **({"code": code} if code else {}),
        }

    @property
    def experiment(self) -> str:
        """The name of the experiment; "" if it is not known."""
        return self.summary.experiment or str(self.settings.get("name") or "")


def _describe_code(code: object) -> str:
    """Returns the revision of the code and its uncommitted changes, or "" if it is not known."""
    if not isinstance(code, dict) or not code.get("revision"):
        return ""
    changed = code.get("changed")
    if not isinstance(changed, dict) or not changed:
        return str(code["revision"])
    files = format_count(len(changed), "changed file")
    kept = f" in {code['patch']}" if code.get("patch") else ""
    return f"{code['revision']} and {files}{kept}"


def read_run(path: Path, name: str, most_points: int | None = None) -> RunData:
    """Returns the data of a run directory.

    `name` is a short name to show. Curves have about `most_points` at most, if that is given.
    """
    return RunData(
        name=name,
        summary=read_summary(path),
        settings=read_settings(path),
        curves=read_curves(RunDirectory(path).metrics, most_points),
        history=read_history(path),
        ancestry=ancestry(path),
        partial_records=read_partial_records(RunDirectory(path).metrics),
    )
