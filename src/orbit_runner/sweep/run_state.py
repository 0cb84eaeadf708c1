"""Reads the progress of a trial's run from its run directory. Does not import TensorFlow.

Only records that a finished step leaves behind count, so a process may be killed at any moment: a
rung counts as reached once its evaluation is recorded and its checkpoint is saved.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orbit_runner.run_directory.metric_records import metric_values
from orbit_runner.run_directory.paths import RunDirectory
from orbit_runner.run_directory.run_reader import RunReader
from orbit_runner.utils.files import read_json_object

# The kind of error in `run.json` after training diverged.
_DIVERGED = "Diverged"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunState:
    """What the run directory of a trial and a seed records.

    Attributes:
        metrics: The validation metrics by step.
        weights: SHA-256 of the weights of each checkpoint ever saved, by step.
        end: The step at which the run ended, also by early stopping; None if it has not.
        diverged: Whether training diverged.
        failure: Why the sweep gave up the run; "" if it did not.
    """

    metrics: Mapping[int, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    weights: Mapping[int, str] = dataclasses.field(default_factory=dict)
    end: int | None = None
    diverged: bool = False
    failure: str = ""

    def early_end(self, step: int) -> int | None:
        """Returns the step before `step` at which the run stopped early; None if it did not."""
        return self.end if self.end is not None and self.end < step else None

    def last_step(self, rung: int | None) -> int | None:
        """Returns a rung, or the end of the run if it is before the rung or `rung` is None."""
        return self.end if rung is None or self.early_end(rung) is not None else rung

    def has_reached(self, step: int) -> bool:
        """Returns whether the run was evaluated at a step, and saved there or later."""
        return step in self.metrics and max(self.weights, default=-1) >= step

    def objective(self, step: int, metric: str) -> float | None:
        """Returns a metric at a step; None if it is not recorded, NaN or infinite."""
        value = self.metrics.get(step, {}).get(metric)
        return value if value is not None and math.isfinite(value) else None

    def best_objective(self, step: int, metric: str, mode: str) -> tuple[int, float] | None:
        """Returns (step, value) of the best finite value up to a step, the first one of equals."""
        sign = 1 if mode == "min" else -1
        values = {at: self.objective(at, metric) for at in sorted(self.metrics) if at <= step}
        finite = [(at, value) for at, value in values.items() if value is not None]
        return min(finite, key=lambda entry: sign * entry[1], default=None)

    @property
    def last_evaluation(self) -> int:
        """The step of the last evaluation, 0 before the first one."""
        return max(self.metrics, default=0)


class RunStates:
    """Reads run directories, and caches their states until their files change."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[Any, RunState]] = {}

    def read(self, run: Path, failure: Path) -> RunState:
        """Returns the state of a run. `failure` is the file with the reason why it was given up."""
        directory = RunDirectory(run)
        files = (
            *(directory.metrics, directory.fingerprints, directory.checkpoints),
            *(directory.record("train"), failure),
        )
        version = [file_version(path) for path in files]
        known = self._known.get(run)
        if known is None or known[0] != version:
            known = self._known[run] = (version, _read_state(RunReader(run), failure))
        return known[1]


def file_version(path: Path) -> tuple[int, ...]:
    """Returns numbers that differ after a file was written or replaced. Clocks may be set back."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def _read_state(run: RunReader, failure: Path) -> RunState:
    last = run.attempts[-1] if run.attempts else {}
    return RunState(
        metrics={
            int(record["step"]): metric_values(record)
            for record in run.log.records()
            if record["split"] == "validation"
        },
        weights={step: fingerprints.weights for step, fingerprints in run.fingerprints.items()},
        end=min(run.ends, default=None),
        diverged=str(last.get("outcome")).partition(":")[0] == _DIVERGED,
        failure=_read_failure(failure),
    )


def _read_failure(path: Path) -> str:
    try:
        return str(read_json_object(path).get("reason") or "failed")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        return "failed"
