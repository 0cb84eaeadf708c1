"""`RunReader`: what the files of a run directory say. Does not import TensorFlow.

`runner runs` needs only small files and the end of `metrics.jsonl`, so that thousands of runs are
listed in a second. The config is not built, so that runs of a task that is not installed can be
shown.
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
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from orbit_runner.checkpoint.latest_checkpoint import checkpoints_of
from orbit_runner.config.schema.modes import TRAINING
from orbit_runner.errors import RunnerError, format_count
from orbit_runner.registry import TRACKERS
from orbit_runner.run_directory.branch import Branch, read_branch
from orbit_runner.run_directory.config import read_settings
from orbit_runner.run_directory.metric_records import (
    SPEED,
    Curves,
    MetricLog,
    is_result,
    metric_values,
)
from orbit_runner.run_directory.paths import CHECKPOINTS, RunDirectory, as_integer
from orbit_runner.run_directory.run_lock import read_holder
from orbit_runner.utils.files import read_json_object, read_lines

if TYPE_CHECKING:
    from orbit_runner.checkpoint.record import CheckpointRecord
    from orbit_runner.run_directory.metric_records import Record
    from orbit_runner.utils.types import JsonObject

_T = TypeVar("_T")
# A run on another machine is running if it wrote a file this recently.
_RECENT_SECONDS = 3600.0
# The status of a run by the kind of the error that ended it; `failed` for others.
_STATUSES = {
    "stopped": "stopped",
    "StoppedAtStep": "stopped",
    "Diverged": "diverged",
    "Interrupted": "preempted",
    "KeyboardInterrupt": "interrupted",
    "LeftAtOnce": "preempted",
    "MemberLost": "lost",
}
_OVERRIDES = ("--resume=override", "override")
_RECORD = re.compile(r"run(\.\w+)?\.json")
# They may have many files, but no runs.
_DIRECTORIES_OF_A_RUN = frozenset({CHECKPOINTS, "train", "validation", "report_data", "assets"})
MOST_POINTS = 3000  # of a curve on a page
BEST_STEP = "best_ckpt_global_step"
# Values of records that do not measure the quality of a model.
NON_METRICS = (SPEED, "validation_examples", "tflops_per_second", "mfu")


@dataclasses.dataclass(frozen=True)
class Fingerprints:
    """The SHA-256 fingerprints that identify a checkpoint."""

    weights: str  # Of the weights.
    state: str  # Of the whole checkpoint.


class _OfLastStart(Generic[_T]):
    """A value in the entry of `run.json` for the last start."""

    def __init__(self, name: str, default: _T) -> None:
        self._name = name
        self._default = default

    def __get__(self, run: RunReader, _: object) -> _T:
        value: _T = run.last_start.get(self._name, self._default)
        return value


class RunReader:
    """A run in a run directory. Each part is read when it is first used, and then kept.

    A file that is missing, damaged or being written leaves its part empty.

    Args:
        path: The run directory.
        most_points: About how many points a curve has at most; None for all.
    """

    experiment = _OfLastStart("experiment", "")  # Its name; "" if the last start has none.
    last_mode = _OfLastStart("mode", "")
    train_steps = _OfLastStart[int | None]("train_steps", None)  # The step at which the run ends.
    seed = _OfLastStart[int | None]("seed", None)
    weights = _OfLastStart("weights", "")  # SHA-256 of the final weights.

    def __init__(self, path: Path, most_points: int | None = None) -> None:
        self.path = path
        self.directory = RunDirectory(path)
        self.log = MetricLog(self.directory.metrics)
        self.checkpoints = checkpoints_of(path)
        self._most_points = most_points

    @functools.cached_property
    def settings(self) -> Mapping[str, object]:
        """All settings in `config.yaml`, by dotted path."""
        return read_settings(self.path)

    @functools.cached_property
    def attempts(self) -> tuple[JsonObject, ...]:
        """The entries of `run.json`, one for each start that trained."""
        return tuple(self.directory.attempts("train"))

    @functools.cached_property
    def _starts(self) -> Sequence[JsonObject]:
        """The starts that trained, or those of another mode if none did."""
        names = (path.name.split(".")[1] for path in sorted(self.path.glob("run.*.json")))
        return self.attempts or next(filter(None, map(self.directory.attempts, names)), [])

    @property
    def starts(self) -> int:
        """The number of starts."""
        return len(self._starts)

    @property
    def last_start(self) -> JsonObject:
        """The entry of `run.json` for the last start; empty if there is none."""
        return self._starts[-1] if self._starts else {}

    def section(self, name: str) -> Mapping[str, Any]:
        """Returns a part of the entry of the last start that trained; empty if it has none."""
        return self.attempts[-1].get(name, {}) if self.attempts else {}

    @property
    def inexact(self) -> tuple[str, ...]:
        """Why the run may not be reproducible."""
        return tuple(map(str, self.last_start.get("inexact", ())))

    @property
    def mode(self) -> str:
        """The mode in which the run last trained; `train_and_eval` if none is recorded."""
        modes = [mode for attempt in self.attempts if (mode := attempt.get("mode")) in TRAINING]
        return modes[-1] if modes else "train_and_eval"

    @property
    def ends(self) -> list[int]:
        """The steps at which the run was complete; it may have been resumed for more steps."""
        finished = (attempt for attempt in self.attempts if attempt.get("outcome") == "done")
        return sorted({attempt["step"] for attempt in finished if "step" in attempt})

    @property
    def is_overridden(self) -> bool:
        """Whether the run was resumed with another config, or from part of a checkpoint."""
        words = (word for attempt in self.attempts for word in attempt.get("argv", ()))
        return any(word in _OVERRIDES for word in words)

    @functools.cached_property
    def fingerprints(self) -> Mapping[int, Fingerprints]:
        """The fingerprints of every checkpoint ever saved, by step."""
        # A process may be killed before it appends those of a checkpoint to the file.
        prints = {
            step: Fingerprints(record.weights, record.state)
            for step, record in self.checkpoints.records()
        }
        # The last line of a step counts: the run may have been resumed from an earlier step.
        for line in read_lines(self.directory.fingerprints):
            prints[line["step"]] = Fingerprints(str(line.get("weights")), str(line.get("state")))
        return prints

    @functools.cached_property
    def newest_record(self) -> CheckpointRecord | None:
        """The record of the newest checkpoint; None if there is none."""
        return next((record for _, record in self.checkpoints.records()), None)

    @functools.cached_property
    def losses(self) -> Mapping[int, float | None]:
        """The training losses by step; None if not a number. Those of long runs take seconds."""
        return self.log.losses()

    @functools.cached_property
    def _curves(self) -> tuple[Curves, float | None]:
        return self.log.curves(self._most_points)

    @property
    def curves(self) -> Curves:
        """The recorded values of every metric by step."""
        return self._curves[0]

    @property
    def steps_per_second(self) -> float | None:
        """The median of the recorded speeds."""
        return self._curves[1]

    @functools.cached_property
    def _records(self) -> Mapping[str, Record]:
        return self.log.last_records()

    @functools.cached_property
    def branch(self) -> Branch | None:
        """Where the run branched off; None if it is no branch."""
        return read_branch(self.path)

    @property
    def status(self) -> str:
        """One of those that `runner runs` lists."""
        return self._status[0]

    @property
    def reason(self) -> str:
        """Why the run has its status, such as why it failed; "" otherwise.

        Also names the machine on which it runs, if that is another one.
        """
        problem = ""
        if self.status == "finished" and self.non_finite_metrics:
            problem = f"the last evaluation is not finite: {', '.join(self.non_finite_metrics)}"
        return "; ".join(filter(None, (problem, self._status[1])))

    @functools.cached_property
    def _status(self) -> tuple[str, str]:
        """The status and, for some, the reason."""
        holder = read_holder(self.path)
        outcome = self.last_start.get("outcome")
        if holder is not None and not _has_ended_since(self.last_start, holder.since):
            if holder.host == "":
                return "running", ""
            is_recent = self.active is not None and time.time() - self.active < _RECENT_SECONDS
            return "running" if is_recent else "lost", f"on {holder.host}"
        if outcome is None:
            return "lost", ""
        if outcome in ("done", "left"):
            problem = self.export_problem
            return "finished", f"the export failed: {problem}" if problem else ""
        kind, _, reason = outcome.partition(": ")
        reason = reason.splitlines()[0] if reason else kind
        if kind == "Interrupted" and "SIGINT" in reason:
            kind = "KeyboardInterrupt"
        return _STATUSES.get(kind, "failed"), reason

    @property
    def export_problem(self) -> str:
        """Why the export at the end failed; "" if it did not."""
        return str(self.last_start.get("export_problem") or "").partition("\n")[0]

    @property
    def title(self) -> str:
        """The name of the experiment, also that in the config; "" if it is not known."""
        return self.experiment or str(self.settings.get("name") or "")

    @functools.cached_property
    def step(self) -> int:
        """The last recorded step."""
        if "step" in self.last_start:
            return int(self.last_start["step"])
        recorded = [int(record["step"]) for record in self._records.values()]
        return max([*recorded, *self.checkpoints.committed_steps()], default=0)

    @functools.cached_property
    def started(self) -> float | None:
        """When the run was started first, in seconds since the epoch."""
        times = (_parse_times(attempt, "started") for attempt in self._starts)
        return min(itertools.chain.from_iterable(times), default=None)

    @functools.cached_property
    def active(self) -> float | None:
        """When the run last wrote a record or ended, in seconds since the epoch."""
        times = [record.get("time") for record in self._records.values()]
        valid_times = [value for value in times if isinstance(value, float)]
        return max([*valid_times, *_parse_times(self.last_start, "finished")], default=None)

    @functools.cached_property
    def _evaluated(self) -> dict[str, float]:
        """The metrics of the last evaluation."""
        values = metric_values(self._records.get("validation", {}))
        values = values or metric_values(self.last_start.get("metrics", {}))
        # The speed of a run is that of training.
        return {name: value for name, value in values.items() if name != SPEED}

    @functools.cached_property
    def metrics(self) -> Mapping[str, float]:
        """The metrics of the last evaluation and, under other names, of the last training record.

        Without its records, the speed is that of the last start.
        """
        speed = self.last_start.get(SPEED)
        trained = metric_values(self._records.get("train", {}))
        return {
            **self._evaluated,
            **({} if speed is None else metric_values({SPEED: speed})),
            **{
                name: value
                for name, value in trained.items()
                if is_result(name) and name not in self._evaluated
            },
        }

    @property
    def non_finite_metrics(self) -> tuple[str, ...]:
        """The metrics of the last evaluation that are NaN or infinite."""
        return tuple(name for name, value in self._evaluated.items() if not math.isfinite(value))

    @property
    def best_metric(self) -> str:
        """The metric that determines the best evaluation; "" if the run does not keep it."""
        return str(self.last_start.get("best", {}).get("metric") or "")

    @functools.cached_property
    def _best(self) -> JsonObject:
        """The content of the file with the best evaluation."""
        rule = self.last_start.get("best", {})
        try:
            file = self.path / str(rule.get("directory")) / "info.json"
            return read_json_object(file) if self.best_metric else {}
        except (OSError, ValueError):
            return {}

    @functools.cached_property
    def best(self) -> Mapping[str, float]:
        """The metrics of the best evaluation; empty if the run does not keep it."""
        return metric_values({k: v for k, v in self._best.items() if k != BEST_STEP})

    @property
    def best_step(self) -> int | None:
        """The step of the best evaluation."""
        return as_integer(self._best.get(BEST_STEP))

    def metric(self, name: str) -> float | None:
        """Returns a metric at the best evaluation if the run keeps it, else at the last one."""
        return self.best.get(name, self.metrics.get(name))

    @property
    def main_metric(self) -> str:
        """The metric to show: the one that determines the best evaluation, else the first one."""
        if self.best_metric:
            return self.best_metric
        return next((name for name in self.metrics if name not in NON_METRICS), "")

    @property
    def changes(self) -> Mapping[str, object]:
        """The settings that override the experiment file, by dotted path."""
        changed = self.branch.values() if self.branch else {}
        return {**changed, **self.last_start.get("changes", {})}

    @property
    def newest_weights(self) -> str:
        """SHA-256 of the weights: those at the end, or of the newest checkpoint."""
        prints = self.fingerprints
        return self.weights or (prints[max(prints)].weights if prints else "")

    @property
    def seconds(self) -> float | None:
        """The wall time of all starts that ended, in seconds; None if no start ended."""
        durations = [seconds for attempt in self.attempts if (seconds := attempt_seconds(attempt))]
        return sum(durations) if durations else None

    @property
    def devices(self) -> str:
        """The devices of the last start; in a cluster, those of its chief."""
        devices = self.section("devices")
        if not devices:
            return ""
        gpus = [str(name) for name in devices.get("gpus") or () if name]
        threads = devices.get("cpu_cores", "?")
        processors = ", ".join(gpus) or f"CPU, {threads} thread{'' if threads == 1 else 's'}"
        cluster = self.section("cluster")
        jobs = cluster.get("members")
        addresses = jobs.values() if isinstance(jobs, dict) else ()
        members = sum(len(job) for job in addresses if isinstance(job, list))
        return f"{processors} ({cluster.get('me')} of {members} members)" if members else processors

    @property
    def software(self) -> Mapping[str, object]:
        """Versions of packages and the revision of the code at the last start."""
        code = self.section("code")
        if not code.get("revision"):
            return self.section("software")
        text = str(code["revision"])
        changed = code.get("changed")
        if isinstance(changed, dict) and changed:
            patch = f" in {code['patch']}" if code.get("patch") else ""
            text += f" and {format_count(len(changed), 'changed file')}{patch}"
        return {**self.section("software"), "code": text}


def read_history(path: Path) -> RunReader:
    """Returns a run whose starts, fingerprints and losses are read now: it may be in progress."""
    run = RunReader(path)
    _ = run.attempts, run.fingerprints, run.losses
    return run


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


def read_runs(directories: Sequence[str | Path], *, inside_runs: bool = False) -> list[RunReader]:
    """Returns all runs in several directories, each once. Raises `RunnerError` if one is missing.

    `inside_runs` is whether run directories in other run directories count.
    """
    advice = "\nspecify the directory that contains the runs"
    roots = [require_directory(Path(name), "DIR", advice) for name in directories]
    paths = dict.fromkeys(
        path for root in roots for path in find_runs(root, inside_runs=inside_runs)
    )
    return [RunReader(path) for path in paths]


def require_directory(path: Path, argument: str, advice: str = "") -> Path:
    """Returns the path of a directory of runs. Raises `RunnerError` if it does not exist."""
    if not path.is_dir():
        exists = path.exists()
        problem = "is not a directory" if exists else "does not exist"
        code = "wrong-file-type" if exists else "missing-file"
        raise RunnerError(f"{path} {problem}{advice}", path=argument, code=code)
    return path


def attempt_seconds(attempt: Mapping[str, object]) -> float | None:
    """Returns the wall time of an entry of `run.json`, in seconds; None if it has not ended."""
    started, finished = _parse_times(attempt, "started"), _parse_times(attempt, "finished")
    return finished[0] - started[0] if started and finished else None


def _has_ended_since(last: JsonObject, since: str) -> bool:
    """Returns whether the last start recorded its end after a process acquired the lock.

    The process keeps the lock until it exits.
    """
    finished = _parse_times(last, "finished")
    locked = _parse_times({"since": since}, "since")
    return bool(finished) and bool(locked) and finished[0] >= locked[0]


def _parse_times(attempt: Mapping[str, object], key: str) -> list[float]:
    try:
        when = datetime.datetime.strptime(str(attempt.get(key)), "%Y-%m-%dT%H:%M:%S%z")
    except ValueError:
        return []
    return [when.timestamp()]
