"""What lists of runs, reports and comparisons show of a run. Does not import TensorFlow.

For a summary, only small files and the end of `metrics.jsonl` are read, so that thousands of runs
are listed in a second. A file that is missing, damaged or being written leaves its part empty. The
config is not built, so that runs of a task that is not installed can be shown.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import itertools
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbit_runner.checkpoint.directory import CheckpointFolder
from orbit_runner.errors import format_count
from orbit_runner.registry import TRACKERS
from orbit_runner.run_directory.branch import Ancestry, ancestry, read_branch
from orbit_runner.run_directory.config import read_settings
from orbit_runner.run_directory.history import RunHistory, read_history
from orbit_runner.run_directory.metric_records import (
    SPEED,
    Curves,
    is_result,
    metric_values,
    read_last_records,
    read_metrics,
)
from orbit_runner.run_directory.paths import CHECKPOINTS, RunDirectory
from orbit_runner.run_directory.run_lock import read_holder
from orbit_runner.utils.files import read_json_object

if TYPE_CHECKING:
    from orbit_runner.run_directory.metric_records import Record
    from orbit_runner.utils.types import JsonObject


STATUSES = (
    "running",
    "finished",
    "stopped",
    "diverged",
    "preempted",
    "interrupted",
    "failed",
    "lost",
)
# A run on another machine is running if it wrote a file this recently.
_RECENT_SECONDS = 3600.0
_RECORD = re.compile(r"run(\.\w+)?\.json")
# They may have many files, but no runs.
_DIRECTORIES_OF_A_RUN = frozenset({CHECKPOINTS, "train", "validation", "report_data", "assets"})
MOST_POINTS = 3000  # of a curve on a page
# Values of records that do not measure the quality of a model.
NON_METRICS = (SPEED, "validation_examples", "tflops_per_second", "mfu")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSummary:
    """What is known about a run at a glance."""

    path: Path
    status: str  # One of `STATUSES`.
    # Why it failed, diverged or stopped, which other machine it runs on, which metrics of the last
    # evaluation are not finite, or why its export failed.
    reason: str = ""
    experiment: str = ""
    mode: str = ""  # Of the last start.
    step: int = 0  # The last recorded one.
    train_steps: int | None = None  # The step at which it ends.
    started: float | None = None  # When it was started first, in seconds since the epoch.
    active: float | None = None  # When it last wrote a record or ended.
    # Of the last evaluation and, under other names, of the last training record.
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    # Of the best evaluation; empty if the run does not keep it.
    best: Mapping[str, float] = dataclasses.field(default_factory=dict)
    best_metric: str = ""
    best_step: int | None = None
    # Settings that override the experiment file, by dotted path.
    changes: Mapping[str, object] = dataclasses.field(default_factory=dict)
    seed: int | None = None
    non_finite_metrics: tuple[str, ...] = ()  # Of the last evaluation.
    weights: str = ""  # SHA-256 of the final weights.
    inexact: tuple[str, ...] = ()  # Why it may not be reproducible.
    export_problem: str = ""  # Why the export at the end failed.
    starts: int = 0
    parent: Path | None = None  # The run that it continues, if it is a branch.
    branch_step: int | None = None  # The last step that it has in common with `parent`.

    def metric(self, name: str) -> float | None:
        """Returns a metric at the best evaluation if the run keeps it, else at the last one."""
        return self.best.get(name, self.metrics.get(name))

    @property
    def main_metric(self) -> str:
        """The metric to show: the one that determines the best evaluation, else the first one."""
        if self.best_metric:
            return self.best_metric
        return next((name for name in self.metrics if name not in NON_METRICS), "")


def find_runs(root: Path, *, inside_runs: bool = False) -> Iterator[Path]:
    """Yields the run directories in a directory, which may be a run itself.

    Does not search hidden directories and links to directories, and run directories only with
    `inside_runs`; in these, directories that the run writes are left out.
    """
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except OSError:
        return
    if any(_RECORD.fullmatch(entry.name) for entry in entries):
        yield root
        if not inside_runs:
            return
        skipped = _DIRECTORIES_OF_A_RUN | tracker_directories()
        entries = [entry for entry in entries if entry.name not in skipped]
    for entry in entries:
        if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
            yield from find_runs(root / entry.name, inside_runs=inside_runs)


@functools.cache
def tracker_directories() -> frozenset[str]:
    """Returns the directories that trackers write in run directories."""
    return frozenset(name for entry in TRACKERS.registered() for name in entry.load().directories)


def read_summary(path: Path) -> RunSummary:
    """Returns the summary of a run directory."""
    directory = RunDirectory(path)
    attempts = _read_attempts(directory)
    last: JsonObject = attempts[-1] if attempts else {}
    records = read_last_records(directory.metrics)
    trained = records.get("train", {})
    evaluated = metric_values(records.get("validation", {})) or _numbers(last.get("metrics"))
    # The speed of a run is that of training. Evaluations have one, too, also in old `run.json`.
    evaluated.pop(SPEED, None)
    speed = _numbers({SPEED: last[SPEED]}) if last.get(SPEED) is not None else {}
    times = [
        float(record["time"])
        for record in records.values()
        if isinstance(record.get("time"), float)
    ]
    active = max([*times, *_parse_times(last, "finished")], default=None)
    status, reason = _status(path, last, active)
    non_finite = tuple(name for name, value in evaluated.items() if not math.isfinite(value))
    if non_finite and status == "finished":
        problem = f"the last evaluation is not finite: {', '.join(non_finite)}"
        reason = "; ".join(filter(None, (problem, reason)))
    best_metric, best, best_step = _read_best(path, last)
    branch = read_branch(path)
    return RunSummary(
        path=path,
        status=status,
        reason=reason,
        experiment=str(last.get("experiment") or ""),
        mode=str(last.get("mode") or ""),
        step=_last_step(directory, last, [int(record["step"]) for record in records.values()]),
        train_steps=_as_integer(last.get("train_steps")),
        started=min(
            (when for attempt in attempts for when in _parse_times(attempt, "started")),
            default=None,
        ),
        active=active,
        metrics={**evaluated, **speed, **_exclude(_results(trained), evaluated)},
        best=best,
        best_metric=best_metric,
        best_step=best_step,
        changes={**(branch.values() if branch else {}), **_as_mapping(last.get("changes"))},
        seed=_as_integer(last.get("seed")),
        non_finite_metrics=non_finite,
        weights=str(last.get("weights") or ""),
        inexact=_texts(last.get("inexact")),
        export_problem=_export_problem(last),
        starts=len(attempts),
        parent=branch.parent if branch else None,
        branch_step=branch.step if branch else None,
    )


def read_summaries(roots: Sequence[Path], *, inside_runs: bool = False) -> list[RunSummary]:
    """Returns the summaries of all run directories in several directories, each once.

    `inside_runs` is whether run directories in other run directories count.
    """
    paths = dict.fromkeys(
        path for root in roots for path in find_runs(root, inside_runs=inside_runs)
    )
    return [read_summary(path) for path in paths]


def _read_attempts(directory: RunDirectory) -> list[JsonObject]:
    """Returns the starts that trained, or those of another mode if none did."""
    names = (path.name.split(".")[1] for path in sorted(directory.path.glob("run.*.json")))
    modes = itertools.chain(["train"], names)
    return next(filter(None, map(directory.attempts, modes)), [])


def _status(path: Path, last: JsonObject, active: float | None) -> tuple[str, str]:
    """Returns the status and, for some, the reason."""
    holder = read_holder(path)
    outcome = last.get("outcome")
    if holder is not None and not _has_ended_since(last, holder.since):
        if holder.host == "":
            return "running", ""
        is_recent = active is not None and time.time() - active < _RECENT_SECONDS
        return "running" if is_recent else "lost", f"on {holder.host}"
    if not isinstance(outcome, str):
        return "lost", ""
    if outcome in ("done", "left"):
        problem = _export_problem(last)
        return "finished", f"the export failed: {problem}" if problem else ""
    kind, _, reason = outcome.partition(": ")
    reason = reason.splitlines()[0] if reason else kind
    if kind == "Interrupted":
        return ("interrupted" if "SIGINT" in reason else "preempted"), reason
    names = {
        "stopped": "stopped",
        "StoppedAtStep": "stopped",
        "Diverged": "diverged",
        "KeyboardInterrupt": "interrupted",
        "LeftAtOnce": "preempted",
        "MemberLost": "lost",
    }
    return names.get(kind, "failed"), reason


def _export_problem(last: JsonObject) -> str:
    return str(last.get("export_problem") or "").partition("\n")[0]


def _has_ended_since(last: JsonObject, since: str) -> bool:
    """Returns whether the last start recorded its end after a process acquired the lock.

    The process keeps the lock until it exits.
    """
    finished = _parse_times(last, "finished")
    locked = _parse_times({"since": since}, "since")
    return bool(finished) and bool(locked) and finished[0] >= locked[0]


def _read_best(path: Path, last: JsonObject) -> tuple[str, dict[str, float], int | None]:
    """Returns the metric, values and step of the best evaluation."""
    rule = last.get("best")
    if not isinstance(rule, dict) or not rule.get("metric"):
        return "", {}, None
    try:
        values = read_json_object(path / str(rule.get("directory")) / "info.json")
    except (OSError, ValueError):
        return str(rule["metric"]), {}, None
    step = _as_integer(values.pop("best_ckpt_global_step", None))
    return str(rule["metric"]), _numbers(values), step


def _last_step(directory: RunDirectory, last: JsonObject, recorded: list[int]) -> int:
    step = _as_integer(last.get("step"))
    if step is not None:
        return step
    saved = CheckpointFolder(directory.checkpoints).committed_steps()
    return max([*recorded, *saved], default=0)


def _numbers(values: object) -> dict[str, float]:
    return metric_values(values) if isinstance(values, dict) else {}


def _results(record: Record) -> dict[str, float]:
    return {name: value for name, value in metric_values(record).items() if is_result(name)}


def _exclude(values: Mapping[str, float], others: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if name not in others}


def _texts(values: object) -> tuple[str, ...]:
    return tuple(map(str, values)) if isinstance(values, list) else ()


def _as_mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _as_integer(value: Any) -> int | None:
    # Configs allow no larger seed, and no larger step.
    is_valid = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32
    return value if is_valid else None


def attempt_seconds(attempt: Mapping[str, object]) -> float | None:
    """Returns the wall time of an entry of `run.json`, in seconds; None if it has not ended."""
    started, finished = _parse_times(attempt, "started"), _parse_times(attempt, "finished")
    return finished[0] - started[0] if started and finished else None


def _parse_times(attempt: Mapping[str, object], key: str) -> list[float]:
    try:
        when = datetime.datetime.strptime(str(attempt.get(key)), "%Y-%m-%dT%H:%M:%S%z")
    except ValueError:
        return []
    return [when.timestamp()]


@dataclasses.dataclass(frozen=True)
class RunData:
    """The config, records and fingerprints of a run."""

    name: str  # A short name.
    summary: RunSummary
    settings: Mapping[str, object]
    curves: Curves
    steps_per_second: float | None  # The median.
    history: RunHistory
    ancestry: Ancestry = dataclasses.field(default_factory=dict)

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
    def weights(self) -> str:
        """SHA-256 of the weights: those at the end, or of the newest checkpoint."""
        prints = self.history.fingerprints
        return self.summary.weights or (prints[max(prints)].weights if prints else "")

    @property
    def devices(self) -> str:
        """The devices of the last start; in a cluster, those of its chief."""
        last = self.history.attempts[-1] if self.history.attempts else {}
        devices = last.get("devices")
        if not isinstance(devices, dict):
            return ""
        gpus = [str(name) for name in devices.get("gpus") or () if name]
        threads = devices.get("cpu_cores", "?")
        processors = ", ".join(gpus) or f"CPU, {threads} thread{'' if threads == 1 else 's'}"
        cluster = _as_mapping(last.get("cluster"))
        jobs = _as_mapping(cluster.get("members")).values()
        members = sum(len(addresses) for addresses in jobs if isinstance(addresses, list))
        return f"{processors} ({cluster.get('me')} of {members} members)" if members else processors

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
    patch = f" in {code['patch']}" if code.get("patch") else ""
    return f"{code['revision']} and {files}{patch}"


def read_run(
    path: Path, name: str, most_points: int | None = MOST_POINTS, *, has_losses: bool = False
) -> RunData:
    """Returns the data of a run directory.

    Args:
        path: The run directory.
        name: A short name to show.
        most_points: About how many points a curve has at most; None for all.
        has_losses: Whether the history contains the losses.
    """
    curves, speed = read_metrics(RunDirectory(path).metrics, most_points)
    return RunData(
        name=name,
        summary=read_summary(path),
        settings=read_settings(path),
        curves=curves,
        steps_per_second=speed,
        history=read_history(path, has_losses=has_losses),
        ancestry=ancestry(path),
    )
