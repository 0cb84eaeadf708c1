"""Compares what two runs recorded: settings, data, code, numerics, versions, checkpoints.

Does not import TensorFlow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_runner.compare.histories import RunDiff, common_steps, compare_runs
from orbit_runner.config.declarations import path_kind
from orbit_runner.config.errors import ConfigError
from orbit_runner.config.fingerprint import can_affect_weights
from orbit_runner.config.resolve import ResolvedConfig
from orbit_runner.config.serialize import differences
from orbit_runner.data.fingerprint import DataFile, have_equal_contents
from orbit_runner.errors import RunnerError, format_count
from orbit_runner.run_directory.code_version import REVISION, compare_code
from orbit_runner.run_directory.config import resolve_run
from orbit_runner.run_directory.data_record import find_record
from orbit_runner.run_directory.run_reader import RunReader
from orbit_runner.step.tensor_comparison import TensorDifference
from orbit_runner.utils.files import to_jsonable
from orbit_runner.utils.user_code import changed_modules

if TYPE_CHECKING:
    from orbit_runner.utils.types import JsonObject

# The kinds of paths that only locate data, whose contents are compared instead.
_LOCATIONS = ("dir", "patterns")
# Numerics that a setting determines, so that the difference is reported once.
_SETTING_OF = {
    "intra-op threads": "runtime.intra_op_threads",
    "XLA": "runtime.enable_xla",
}


@dataclasses.dataclass(frozen=True)
class Finding:
    """A difference between the records of two runs that can change the weights."""

    kind: str  # `settings`, `data`, `code`, `replicas`, `numerics`, `versions` or `resume`
    name: str  # the setting, the file, the package, or what else differs
    left: str = ""  # its value in the first run, as a short text; "" if the name is enough
    right: str = ""  # its value in the second run

    @property
    def values(self) -> str:
        """Both values, such as `1 and 2`; "" if there are none."""
        return f"{self.left} and {self.right}" if self.left or self.right else ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reruns:
    """The result of running both runs again."""

    start: int  # the step from which both were run again; 0 for the beginning
    end: int  # the step at which they were compared first
    # The first step after which they differ; 0 if the initial weights do, None if nothing does.
    first_step: int | None
    tensor: TensorDifference | None = None  # the first one that differs, if it is known
    # Whether each gives the weights that its run recorded at `end`; None if it recorded none.
    repeats: Sequence[bool | None] = (None, None)
    notes: Sequence[str] = ()  # differences of this machine, and what could not be determined


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explanation:
    """The differences between two runs, and what explains them."""

    left: str  # the first run, A
    right: str  # the second run, B
    causes: Sequence[Finding]  # what differs between their records, settings first
    unknown: Sequence[str]  # what cannot be compared
    has_settings: bool  # whether the configs of both can be built, so that they are compared
    recorded: RunDiff  # where the checkpoints and losses first differ
    reruns: Reruns | None = None  # None if they were not run again
    problem: str = ""  # why they could not be run again

    @property
    def equal(self) -> bool:
        """Whether the checkpoints of the same step are equal, or the reruns if there are none."""
        if self.recorded.compared:
            return self.recorded.first is None
        return self.reruns is not None and self.reruns.first_step is None

    @property
    def exact_reruns(self) -> Reruns | None:
        """The reruns; None if one gives other weights than its run, so that only records count."""
        return None if self.reruns is None or False in self.reruns.repeats else self.reruns

    @property
    def verdict(self) -> str:
        """One sentence: the cause, and where the runs first differ."""
        if not self.equal:
            return f"{self._cause}; {self._place}"
        if self.recorded.compared:
            checkpoints = format_count(len(self.recorded.compared), "checkpoint")
            return f"equal: {checkpoints} up to step {self.recorded.step}"
        assert self.reruns is not None
        return f"equal: both were run again, and have the same weights at step {self.reruns.end}"

    @property
    def _cause(self) -> str:
        if not self.causes:
            unknown = "not known, because a config cannot be read"
            return "no recorded difference explains it" if self.has_settings else unknown
        cause = self.causes[0]
        is_plural = cause.kind != "settings" and cause.name.endswith("s")
        verb = "differ" if is_plural else "differs"
        return f"{cause.name} {verb} ({cause.values})" if cause.values else cause.name

    @property
    def _place(self) -> str:
        exact = self.exact_reruns
        if exact is not None and exact.tensor is not None:
            return f"first differing tensor: {str(exact.tensor).removeprefix('the ')}"
        if exact is not None and exact.first_step is not None:
            return f"the weights first differ after step {exact.first_step}"
        return self.recorded_place

    @property
    def recorded_place(self) -> str:
        """Where the checkpoints first differ."""
        recorded = self.recorded
        if not recorded.compared:
            return "no checkpoint of the same step"
        if recorded.first_weights is None:
            return f"only the state besides the weights differs, at step {recorded.first}"
        since = recorded.last_equal
        equal = "" if since is None else f", and are equal at step {since}"
        return f"the weights differ at step {recorded.first_weights}{equal}"

    def as_dict(self) -> JsonObject:
        """Returns the result for `--json`, with null for NaN and infinities."""
        exact = self.exact_reruns
        tensor = str(exact.tensor) if exact and exact.tensor else None
        results = {"equal": self.equal, "verdict": self.verdict, "first_tensor": tensor}
        values: JsonObject = to_jsonable({**results, **dataclasses.asdict(self)})
        return values


class RecordedRun(RunReader):
    """What a run directory records; `name` is that of the argument, for messages.

    `imports` are modules to import before the config is built. Raises `RunnerError` if the path is
    no run directory.
    """

    def __init__(self, path: Path, name: str, imports: tuple[str, ...] = ()) -> None:
        super().__init__(path)
        config = self.directory.config
        if not (config.exists() or self.directory.checkpoints.exists()):
            raise RunnerError(
                f"{name}: {path} has neither config.yaml nor checkpoints\n"
                "specify a run directory; `runner runs` lists them",
                code="not-a-run",
            )
        self.data, _ = find_record(path)  # the fingerprint; None if it is not recorded
        record = self.newest_record
        self.numerics = record.numerics if record else {}  # what the newest checkpoint depends on
        self.resolved: ResolvedConfig | None = None  # the config; None if it cannot be built
        self.problem = "" if config.is_file() else "it has no config.yaml"  # why it cannot
        if not self.problem:
            try:
                self.resolved = resolve_run(path, imports)
            except ConfigError as error:
                first = error.problems[0]
                line = first.message.partition("\n")[0]
                self.problem = f"{first.path}: {line}"


Pair = tuple[RecordedRun, RecordedRun]


def compare_recorded(left: RecordedRun, right: RecordedRun) -> Explanation:
    """Returns the differences between the records of two runs."""
    runs = left, right
    causes = [*_settings(runs), *_data(runs), *_code(runs), *_replicas(runs)]
    causes += _numerics(runs, {cause.name for cause in causes})
    versions = _differing("versions", *(run.section("software") for run in runs))
    causes += [cause for cause in versions if cause.name != "PyYAML"]
    causes += _resumes(runs)
    named = zip("AB", runs, strict=True)
    return Explanation(
        left=str(left.path),
        right=str(right.path),
        causes=causes,
        has_settings=all(run.resolved is not None for run in runs),
        unknown=[f"{name}: {run.problem}" for name, run in named if run.problem],
        recorded=_compare_checkpoints(runs),
    )


def _differing(
    kind: str, left: Mapping[str, object], right: Mapping[str, object]
) -> Iterator[Finding]:
    """Yields the entries that both have and that differ."""
    for name, value in left.items():
        if name in right and value != right[name]:
            yield Finding(kind, name, str(value), str(right[name]))


def _settings(runs: Pair) -> Iterator[Finding]:
    configs = [run.resolved.config for run in runs if run.resolved is not None]
    for difference in differences(*configs) if len(configs) == len(runs) else ():
        path = difference.path
        matters = any(can_affect_weights(path, config) for config in configs)
        if matters and not _is_location(path, runs):
            yield Finding("settings", path, difference.left, difference.right)


def _is_location(path: str, runs: Pair) -> bool:
    section, _, name = path.removeprefix("task.").rpartition(".")
    return path_kind(name) in _LOCATIONS and all(section in (run.data or ()) for run in runs)


def _data(runs: Pair) -> Iterator[Finding]:
    left, right = (run.data or {} for run in runs)
    for section in (name for name in left if name in right):
        if not section.startswith("validation"):
            for name, texts in _files(left[section], right[section]):
                yield Finding("data", f"{section}: {name}", *texts)


def _files(left: Sequence[DataFile], right: Sequence[DataFile]) -> Iterator[tuple[str, list[str]]]:
    """Yields the name of each file that differs, with a description of both."""
    digests = [[row.digest for row in rows] for rows in (left, right)]
    if all(digests[0]) and digests[0] == digests[1]:
        return  # Only the names of the files can differ.
    rows = [{row.name: row for row in rows} for rows in (left, right)]
    for name in {**rows[0], **rows[1]}:
        a, b = (side.get(name) for side in rows)
        if a is None or b is None or not have_equal_contents(a, b):
            yield name, [_describe(row, a, b) for row in (a, b)]


def _describe(row: DataFile | None, *pair: DataFile | None) -> str:
    if row is None:
        return "missing"
    if len({other.bytes for other in pair if other}) > 1:
        return f"{row.bytes:,} bytes"
    return row.digest[: row.digest.find(":") + 13] or "unknown contents"


def _code(runs: Pair) -> Iterator[Finding]:
    findings = [
        Finding("code", name, *(_state(name, value) for value in values))
        for name, *values in compare_code(*(run.section("code") for run in runs))
    ]
    if not findings and all(run.newest_record for run in runs):
        modules = [run.newest_record.code for run in runs if run.newest_record]
        for name in changed_modules(*modules):
            findings.append(Finding("code", f"module {name}", *(m[name][:8] for m in modules)))
    yield from findings


def _state(name: str, value: str) -> str:
    if name == REVISION:
        return value[:12]
    return f"changed ({value[:8]})" if value else "as committed"


def _replicas(runs: Pair) -> Iterator[Finding]:
    strategies = [run.newest_record.strategy if run.newest_record else "" for run in runs]
    # One replica has the same result under each strategy.
    counts = [text.rpartition("×")[2].strip() for text in strategies]
    if all(counts) and counts[0] != counts[1]:
        yield Finding("replicas", "replicas", *strategies)
    devices = [run.section("devices") for run in runs]
    gpus = [
        {"devices": ", ".join(map(str, found.get("gpus") or ())) or "CPU"} if found else {}
        for found in devices
    ]
    yield from _differing("replicas", *gpus)


def _numerics(runs: Pair, known: set[str]) -> Iterator[Finding]:
    versions = {name for run in runs for name in run.section("software")}
    for finding in _differing("numerics", *(run.numerics for run in runs)):
        if finding.name not in versions and _SETTING_OF.get(finding.name) not in known:
            yield finding


def _resumes(runs: Pair) -> Iterator[Finding]:
    left, right = (run.log.recoveries() for run in runs)
    if left != right:
        name = "recoveries after divergence"
        yield Finding("resume", name, str(left[-1][1]), str(right[-1][1]))
    a, b = (_inexact_reasons(run) for run in runs)
    for name, reasons in (("A", a - b), ("B", b - a)):
        for reason in sorted(reasons):
            yield Finding("resume", f"{name} is not reproducible: {reason}")


def _inexact_reasons(run: RecordedRun) -> set[str]:
    """Returns why the config of a run does not reproduce it."""
    overridden = {"it was resumed with another config"} if run.is_overridden else set()
    return {*(run.newest_record.inexact if run.newest_record else ()), *overridden}


def _compare_checkpoints(runs: Pair) -> RunDiff:
    intervals = [run.settings.get("trainer.summary_interval") for run in runs]
    interval = intervals[0] if intervals[0] == intervals[1] else None
    # Means over different numbers of steps cannot be compared.
    interval = (interval if isinstance(interval, int) else 1) if interval else None
    step = max(common_steps(*runs), default=0)
    return compare_runs(*runs, step=step, summary_interval=interval)
